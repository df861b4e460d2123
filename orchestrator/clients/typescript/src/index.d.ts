/** Runs the tool calls of AI agents in cells that the kernel keeps closed: a client of `lazaret session`. */

export type Stream = "stdout" | "stderr";
export type Trust = "guided" | "supervised" | "autonomous";
export type Risk = "low" | "medium" | "high";
/** An answer to an approval: this call, what the same rule asks of this tool from now on, or neither. */
/**
 * `minutes` opens what a call wants to every call, for 1 to 1440 minutes; for a call that wants nothing it is `once`. `no_and_stop` also
 * cancels the session's other calls.
 */
export type Answer = "once" | "session" | { readonly minutes: number } | "no" | "no_and_stop";
/** A program with its arguments, without a shell; or a line for bash. */
export type Command = string | ReadonlyArray<string | Uint8Array>;

export interface SessionOptions {
  /** The project root: what commands and tools may work on. */
  project?: string;
  /** The central root, for long outputs and notes. */
  central?: string;
  /** Where commands start that name no directory. */
  cwd?: string;
  /** The policy profile. */
  profile?: string;
  /** Which calls are asked about; without it none is. */
  trust?: Trust;
  /** A file that narrows the session. */
  scope?: string;
  /** Hosts that commands may reach: NAME or NAME:PORT. */
  allowHosts?: readonly string[];
  /** Package registries that commands may reach: npm, pypi … */
  allowNet?: readonly string[];
  /** Tools that are switched off. */
  disable?: readonly string[];
  maxViolations?: number;
  /** The socket of an executor that listens already. */
  socket?: string;
  /** Whether there is a log of this run; true if absent. The executor's audit is written in any case. */
  log?: boolean;
  /**
   * `lazaret`, with what stands before it; the value of LAZARET (unless it is 1, as in every cell), else the program in the package for
   * this processor, else `lazaret` of PATH, if absent.
   */
  program?: string | readonly string[];
  /** The environment of `lazaret`; this process's if absent. Values of names that look like secrets are taken out of results. */
  environment?: Readonly<Record<string, string>>;
  /** Answers approvals; without it the answer is no. */
  onApproval?: (approval: Approval) => Answer | Promise<Answer>;
  onSecurityEvent?: (event: SecurityEvent) => void;
  /** Hears that a hook of the user ran for a call: `hook`, `event`, `outcome`, `message` … as `lazaret session` writes it. */
  onHook?: (ran: Readonly<Record<string, unknown>>) => void;
  /** What is wrong and no error of a call; without it a warning of the process. */
  onWarning?: (message: string) => void;
}

/** What is in force in a session. */
export interface SessionInfo {
  readonly protocol: number;
  /** Version of `lazaret`; null where it does not say so. */
  readonly version: string | null;
  readonly id: string;
  readonly project: string;
  readonly cwd: string;
  readonly central: string;
  readonly profile: string;
  /** SHA-256 of the policy in force. */
  readonly policy: string;
  readonly tier: "namespaced" | "flat";
  /** Names of the kernel's mechanisms that are in force. */
  readonly layers: readonly string[];
  readonly hosts: readonly string[];
  readonly alsoClosed: readonly string[];
  readonly trust: Trust | null;
  readonly channel: "relay" | "separate" | null;
  readonly maxViolations: number | null;
}

/** A call that waits for an answer. */
export interface Approval {
  readonly tool: string;
  /** Null where it has more than 64 KiB. */
  readonly input: Readonly<Record<string, unknown>> | null;
  /** The rule that asks. */
  readonly rule: string;
  readonly why: string;
  readonly risk: Risk;
  /** SHA-256 of the call: what an answer is for. */
  readonly digest: string;
  readonly expiresS: number;
  readonly channel: "relay";
  /** What the answer `session` allows: the calls of the rule, this call again, what it wants, requests of its program like this one, or only once. */
  readonly session: "rule" | "call" | "wants" | "request" | "request_once" | "once";
  /** That in words; null for `once` and `request_once`. */
  readonly forSession: string | null;
  /** What a yes additionally opens. */
  readonly wants: { readonly hosts?: string[]; readonly read?: string[]; readonly write?: string[]; readonly connect?: number[] } | null;
  /** The call's place in a batch. */
  readonly part: number | null;
  /** Why the answer before was not taken. */
  readonly notTaken: string | null;
}

/** A call tried to leave what it may touch. */
export interface SecurityEvent {
  readonly type: string;
  readonly tool: string;
  readonly message: string;
  readonly violations: number;
  readonly maxViolations: number | null;
}

/** What is known of a call: usage, layers, exit code, what was denied … */
export interface Metadata {
  readonly tool: string;
  readonly layers: readonly string[];
  readonly exitCode?: number;
  readonly signal?: number;
  /** What was found in the project since the last result, one a kind. */
  readonly found?: ReadonlyArray<{
    readonly kind: string;
    readonly count: number;
    readonly objects: ReadonlyArray<{ readonly target: string; readonly state?: string }>;
    readonly why: string;
    readonly advice?: string;
  }>;
  readonly denied?: ReadonlyArray<{
    readonly what: { readonly kind: string; readonly target: string };
    readonly by: { readonly kind: string; readonly name: string };
    readonly why: string;
    readonly remedy: Readonly<Record<string, string>> | null;
    readonly count: number;
  }>;
  readonly [field: string]: unknown;
}

/** The result of a call that succeeded. */
export interface Result {
  /** For the model. Bytes that are not UTF-8 are replaced; `data` has them. */
  readonly text: string;
  readonly data: Buffer;
  readonly metadata: Metadata;
  readonly image: { readonly mediaType: string; readonly dataBase64: string } | null;
}

/** A command that has ended by itself. */
export interface Completed {
  /**
   * As a shell counts: 128 and the signal's number where a signal ended it, 127 where the program or the directory is not there, 126
   * where it may not be started; then `stderr` says why.
   */
  readonly exitCode: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly metadata: Metadata;
}

export type OutputHandler = (stream: Stream, chunk: Buffer) => void | Promise<void>;

export interface RunOptions {
  stdin?: string | Uint8Array | null;
  /** Relative to the project root, or absolute. */
  cwd?: string | null;
  /** Added to the cell's own. It is part of the command, and so in the run log and in questions. */
  env?: Readonly<Record<string, string>>;
  /** Seconds; the policy's default without it, and never more than its maximum. */
  timeout?: number;
  /** Ends the command after so many seconds without output. */
  idleTimeout?: number;
  /** Bytes of each stream; 100 MiB if absent. */
  outputLimit?: number;
  /** Gets both streams while they come; the whole session waits for it. */
  onOutput?: OutputHandler;
  /** Whether another exit code than 0 is a `CommandFailed`. */
  check?: boolean;
  /** Ends the command, with the signal's reason as the error. */
  signal?: AbortSignal;
}

/** A tool of the client's own. */
export interface Tool {
  name: string;
  /** For the model: what it does. At most 4 KiB. */
  description: string;
  /** JSON Schema of its input, at most 64 KiB. */
  inputSchema: object;
  /** Carries out a call. A `ToolError` is for the model to see. The signal is aborted when the call has ended. */
  handler: (input: any, context: { signal: AbortSignal }) => ToolReply | Promise<ToolReply>;
  /** `high` if absent. */
  risk?: Risk;
  /** Seconds that a call may take, at most 600; 60 if absent. */
  timeout?: number;
}

export type ToolReply = string | { text: string; structured?: Record<string, unknown> };

/** A call that is under way. */
export class Call {
  private constructor();
  /** Feeds the command; the call's input must have `stdin: true`. What a command has not read is kept for it, 8 MiB for all calls. */
  write(data: string | Uint8Array): Promise<void>;
  /** Ends the command's standard input. */
  endInput(): Promise<void>;
  /** Ends the call and everything it has started; its result is then `Cancelled`, if it had not ended before. */
  cancel(): void;
  /** Waits for its result; a `CallError` of its kind where it did not succeed. */
  result(): Promise<Result>;
}

/** A session of Lazaret: commands and tools in cells on one project. */
export class Session {
  private constructor();
  /** Starts `lazaret` and waits until the session is open: `NotInstalled`, `SessionRefused` or `SessionEnded` where none opens. */
  static open(options?: SessionOptions): Promise<Session>;
  /** Cancels the calls under way and ends the session and its processes. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  readonly info: SessionInfo;
  /** The process `lazaret`. */
  readonly pid: number;
  /** Runs a command in a cell; returns whatever the exit code is. */
  run(command: Command, options?: RunOptions): Promise<Completed>;
  /** The content of a file, as a command would read it; a `FileError` where it cannot. */
  readFile(path: string, options?: { limit?: number; signal?: AbortSignal }): Promise<Buffer>;
  /** Writes a file, as a command would, and makes its directories; at most 100 MiB. */
  writeFile(path: string, data: string | Uint8Array, options?: { signal?: AbortSignal }): Promise<void>;
  /** Calls a tool by its name: `file_read`, `grep`, `batch` … (`lazaret tools` lists them). */
  call(tool: string, input?: object, options?: { onOutput?: OutputHandler; signal?: AbortSignal }): Promise<Result>;
  /** Starts a call, to be fed, cancelled or waited for. */
  start(tool: string, input: object, options?: { onOutput?: OutputHandler }): Promise<Call>;
  /** The tools that a model is shown. */
  tools(): Promise<ReadonlyArray<{ name: string; description: string; inputSchema: object; risk: Risk }>>;
  /** Adds a tool of the client's own. Calls of it go the way of all others: validated, decided, recorded. */
  register(tool: Tool): Promise<void>;
  unregister(name: string): Promise<void>;
  /** What was allowed for the session. */
  grants(): Promise<ReadonlyArray<Grant>>;
  /** Takes back what was allowed; what is left. */
  revoke(grant: number): Promise<ReadonlyArray<Grant>>;
  /** What the file tools have changed, newest first; 50 changes if no number is given. */
  history(limit?: number): Promise<Result>;
  /** Brings back what a change of a file tool has replaced; `path` as `history` names it. */
  undo(change: number, path: string, options?: { force?: boolean }): Promise<Result>;
}

export interface Grant {
  readonly grant: number;
  readonly rule: string;
  readonly tool: string;
  readonly calls: number;
  /** The only call that it allows. */
  readonly digest?: string;
}

/** The base of all errors of this package. Decide by class, never by a message's text. */
export class LazaretError extends Error {}
/** The program `lazaret` cannot be started. */
export class NotInstalled extends LazaretError {}
/** No session opens: the policy, the project or the machine does not allow it. */
export class SessionRefused extends LazaretError {
  readonly kind: string;
}
/** The session is over, and with it every call that was under way. */
export class SessionEnded extends LazaretError {
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** The end of what `lazaret` wrote to standard error. */
  readonly diagnostics: string;
}
/** The session was ended because its calls tried too often to leave what they may touch. */
export class TooManyViolations extends SessionEnded {}
/** `lazaret` wrote what this package does not understand, or did not understand what this package wrote. */
export class ProtocolError extends LazaretError {}
/** A command printed more than was asked for, and was ended. */
export class OutputTooLarge extends LazaretError {
  readonly limit: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}
/** A failure of `readFile` and `writeFile`. */
export class FileError extends LazaretError {
  /** As that of `node:fs`. */
  readonly code: "ENOENT" | "EISDIR" | "EACCES" | "EIO" | "EINVAL" | "EFBIG";
  readonly path: string;
}
/** A call that did not do what it was asked for. */
export class CallError extends LazaretError {
  /** Lazaret's name of the reason. */
  readonly kind: string;
  readonly layer: string;
  readonly metadata: Metadata;
  /** What a command had printed. */
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}
export class InvalidInput extends CallError {}
export class UnknownTool extends CallError {}
/** The call was not allowed, and nothing of it was done. */
export class Denied extends CallError {}
export class DeniedByPolicy extends Denied {}
export class DeniedByUser extends Denied {}
/** Nobody answered in time. */
export class ApprovalExpired extends Denied {}
/** The call tried to leave what it may touch. */
export class Violation extends Denied {}
export class NotFound extends CallError {}
export class IoError extends CallError {}
export class CommandFailed extends CallError {
  readonly exitCode: number;
}
export class TimedOut extends CallError {}
export class IdleTimedOut extends TimedOut {}
export class Cancelled extends CallError {}
/** The command ran into a limit of the policy and was ended. */
export class ResourceLimit extends CallError {}
/** The executor died while the call was under way. The next call opens a new session. */
export class ExecutorLost extends CallError {}
/** Lazaret itself failed. */
export class InternalError extends CallError {}
/** Thrown by a tool of the client's own to report what went wrong. */
export class ToolError extends LazaretError {
  constructor(message: string, kind?: ToolErrorKind);
  readonly kind: ToolErrorKind;
}
export type ToolErrorKind =
  | "io"
  | "invalid_input"
  | "not_found"
  | "exit_nonzero"
  | "timeout"
  | "cancelled"
  | "resource_limit";

export interface ChatOptions {
  /** The project root; without it no tool works on files. */
  project?: string;
  central?: string;
  /** The provider of the model, by its name in `lazaret chat`. */
  provider?: string;
  model?: string;
  profile?: string;
  /** Which calls are asked about; `guided` if absent. */
  trust?: Trust;
  /** Further options of `lazaret serve`. */
  arguments?: readonly string[];
  program?: string | readonly string[];
  environment?: Readonly<Record<string, string>>;
  /** Answers a question, the payload of `chat:tool-confirm`; the run waits for it. Without it each such call is denied. */
  onApproval?: (asked: Readonly<Record<string, unknown>>) => Answer | Promise<Answer>;
}

/** What happened in a run, by the names of `chat --json`: `chat:text-delta`, `chat:tool-start`, `chat:hook` … */
export interface ChatEvent {
  readonly type: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** The end of a run. */
export interface ChatReply {
  /** The model's last answer. */
  readonly text: string;
  /** Why it ended: `done`, `finished`, `turn_limit`, `error` … */
  readonly reason: string;
  /** What ended it, where something failed. */
  readonly error: { readonly code: string; readonly message: string; readonly advice?: string } | null;
  /** What the task ended with, where its pack gives it a form. */
  readonly result: unknown;
}

/** A conversation with a model whose tools work in cells: a client of `lazaret serve`. */
export class Chat {
  static open(options?: ChatOptions): Promise<Chat>;
  readonly conversationId: string;
  get pid(): number;
  get diagnostics(): string;
  /** Ends the runs under way, the sessions and the server. */
  close(): Promise<void>;
  /** Says something, and waits for the end of the run. Other fields are those of `POST /run`. */
  send(prompt: string, options?: { onEvent?: (event: ChatEvent) => void; [field: string]: unknown }): Promise<ChatReply>;
  /** The events of a run as they come; the last has the type `reply`. To stop reading ends the run. */
  stream(
    prompt: string,
    fields?: Readonly<Record<string, unknown>>,
  ): AsyncGenerator<ChatEvent | { readonly type: "reply"; readonly reply: ChatReply }>;
}

/** The server does not begin, or refuses a request. */
export class ChatError extends LazaretError {
  readonly code: string | null;
}
