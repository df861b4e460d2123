// What can go wrong. Each kind of error that `lazaret` names is a class: decide by class, never by a message's text.

export class LazaretError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

export class NotInstalled extends LazaretError {}

export class SessionRefused extends LazaretError {
  constructor(message, kind) {
    super(message);
    this.kind = kind;
  }
}

export class SessionEnded extends LazaretError {
  constructor(message, { exitCode = null, signal = null, diagnostics = "", cause } = {}) {
    super(message, { cause });
    this.exitCode = exitCode;
    this.signal = signal;
    this.diagnostics = diagnostics;
  }
}

export class TooManyViolations extends SessionEnded {}

export class ProtocolError extends LazaretError {}

export class OutputTooLarge extends LazaretError {
  constructor(limit, stdout, stderr) {
    super(`the command printed more than ${limit} bytes`);
    this.limit = limit;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

export class CallError extends LazaretError {
  constructor(message, { kind, layer = "", metadata = {}, stdout = EMPTY, stderr = EMPTY }) {
    super(message);
    this.kind = kind;
    this.layer = layer;
    this.metadata = metadata;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

const EMPTY = Buffer.alloc(0);

export class InvalidInput extends CallError {}
export class UnknownTool extends CallError {}
export class Denied extends CallError {}
export class DeniedByPolicy extends Denied {}
export class DeniedByUser extends Denied {}
export class ApprovalExpired extends Denied {}
export class Violation extends Denied {}
export class NotFound extends CallError {}
export class IoError extends CallError {}
export class CommandFailed extends CallError {
  get exitCode() {
    return exitCode(this.metadata);
  }
}
export class TimedOut extends CallError {}
export class IdleTimedOut extends TimedOut {}
export class Cancelled extends CallError {}
export class ResourceLimit extends CallError {}
export class ExecutorLost extends CallError {}
export class InternalError extends CallError {}

// Of a kind that is not listed it is `CallError`.
const CALL_ERRORS = new Map([
  ["invalid_input", InvalidInput],
  ["unknown_tool", UnknownTool],
  ["denied_policy", DeniedByPolicy],
  ["denied_user", DeniedByUser],
  ["approval_timeout", ApprovalExpired],
  ["violation", Violation],
  ["not_found", NotFound],
  ["io", IoError],
  ["exit_nonzero", CommandFailed],
  ["timeout", TimedOut],
  ["idle_timeout", IdleTimedOut],
  ["cancelled", Cancelled],
  ["resource_limit", ResourceLimit],
  ["executor_lost", ExecutorLost],
  ["protocol", InternalError],
  ["internal", InternalError],
]);

/** The error of a result line that has one. */
export function callError(line, stdout, stderr) {
  const { code: kind, layer, message } = line.error;
  const Kind = CALL_ERRORS.get(kind) ?? CallError;
  return new Kind(message, { kind, layer, metadata: line.metadata, stdout, stderr });
}

const TOOL_ERRORS = new Set([
  "io", "invalid_input", "not_found", "exit_nonzero", "timeout", "cancelled", "resource_limit",
]);

export class ToolError extends LazaretError {
  constructor(message, kind = "io") {
    if (!TOOL_ERRORS.has(kind)) throw new RangeError(`a tool cannot report the kind ${kind}`);
    super(message);
    this.kind = kind;
  }
}

/** A failure of `readFile` and `writeFile`; `code` is that of `node:fs`. */
export class FileError extends LazaretError {
  constructor(code, message, path) {
    super(`${code}: ${message}, '${path}'`);
    this.code = code;
    this.path = path;
  }
}

/** The exit code of a command, as a shell counts: 128 and the signal's number where a signal ended it. */
export function exitCode(metadata) {
  return metadata.signal !== undefined ? 128 + metadata.signal : (metadata.exitCode ?? 0);
}
