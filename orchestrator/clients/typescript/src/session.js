// A session: commands and tools in cells on one project.

import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { FILE_MAX, READ, WRITE, fileError, tooLarge } from "./files.js";
import {
  Cancelled,
  IoError,
  NotFound,
  OutputTooLarge,
  ProtocolError,
  SessionEnded,
  SessionRefused,
  TimedOut,
  ToolError,
  TooManyViolations,
  CommandFailed,
  callError,
  exitCode,
} from "./errors.js";
import { Program, encode } from "./program.js";
import { STAGE, plan, stdinLines, toBytes, withFile } from "./command.js";

/** The version of the lines that this package speaks. */
const PROTOCOL = 1;
/** Bytes of output that `run` collects of each stream, where no other limit is given. */
const OUTPUT_MAX = 100 << 20;
const MESSAGE_MAX = 4096;
const ANSWERS = ["once", "session", "no", "no_and_stop"];

export class Call {
  #session;
  #number;
  #done;

  constructor(session, number, done) {
    this.#session = session;
    this.#number = number;
    this.#done = done;
  }

  /** Feeds the command; the call's input must have `stdin: true`. */
  async write(data) {
    for (const line of stdinLines(this.#number, toBytes(data))) {
      if (!line.stdinEnd) await this.#session._write(line);
    }
  }

  /** Ends the command's standard input. */
  endInput() {
    return this.#session._write({ op: "stdin", id: this.#number, stdinEnd: true });
  }

  /** Ends the call and everything it has started; its result is then `Cancelled`, if it had not ended before. */
  cancel() {
    this.#session._cancel(this.#number);
  }

  /** Waits for its result. */
  async result() {
    const line = await this.#done;
    if (line.error) throw callError(line);
    return toResult(line);
  }
}

export class Session {
  #options;
  #program = null;
  #info = null;
  #opening;
  #ended = null;
  #closing = false;
  #number = 0;
  #calls = new Map();
  #replies = new Map();
  #handlers = new Map();

  /** Starts `lazaret` and waits until the session is open. */
  static async open(options = {}) {
    const session = new Session();
    session.#options = options;
    session.#opening = deferred();
    session.#program = await Program.start(
      words(options),
      options.environment,
      (line) => session.#take(line),
      (exit, error) => session.#end(exit, error),
    );
    try {
      await session.#opening.promise;
    } catch (error) {
      await session.close();
      throw error;
    }
    return session;
  }

  /** Cancels the calls under way and ends the session and its processes. */
  async close() {
    this.#closing = true;
    for (const number of this.#calls.keys()) this._cancel(number);
    await this.#program.end();
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.close();
  }

  /** What is in force: project, profile, tier, layers, version. */
  get info() {
    return this.#info;
  }

  /** The process `lazaret`. */
  get pid() {
    return this.#program.pid;
  }

  /** Runs a command in a cell: a list is a program with its arguments, without a shell; a string is for bash. */
  async run(command, options = {}) {
    const { onOutput, outputLimit = OUTPUT_MAX, check = false, signal, timeout } = options;
    signal?.throwIfAborted();
    let planned = plan(command, { ...options, roots: [this.#info.project, this.#info.central] });
    if (planned.staged !== null) planned = withFile(planned, await this.#stage(planned.staged, signal));
    const exact = timeout !== undefined && !Number.isInteger(timeout) ? timeout : undefined;
    const done = await this.#run(planned, { outputLimit, onOutput, signal, exact });
    if (check && done.exitCode !== 0) {
      const { stdout, stderr, metadata } = done;
      const failed = { ...metadata, exitCode: done.exitCode, signal: undefined };
      const known = { kind: "exit_nonzero", layer: "result", metadata: failed, stdout, stderr };
      throw new CommandFailed(`the command exited with code ${done.exitCode}`, known);
    }
    return done;
  }

  /** The content of a file of the session, as a command would read it. */
  async readFile(path, { limit = FILE_MAX, signal } = {}) {
    const read = await this.#file(READ, path, [String(limit + 1)], null, limit + 1, signal);
    if (read.stdout.length > limit) throw tooLarge(path, limit);
    return read.stdout;
  }

  /** Writes a file of the session, as a command would, and makes its directories. */
  async writeFile(path, data, { signal } = {}) {
    const content = toBytes(data);
    if (content.length > FILE_MAX) throw new RangeError(`a file has at most ${FILE_MAX} bytes`);
    await this.#file(WRITE, path, [], content, OUTPUT_MAX, signal);
  }

  /** Calls a tool by its name. */
  async call(tool, input = {}, { onOutput, signal } = {}) {
    signal?.throwIfAborted();
    const call = await this.start(tool, input, { onOutput });
    const abort = () => call.cancel();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await call.result();
    } catch (error) {
      if (error instanceof Cancelled) signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Starts a call, to be fed, cancelled or waited for. */
  async start(tool, input, { onOutput } = {}) {
    const { number, promise } = await this.#start(tool, input, onOutput);
    return new Call(this, number, promise);
  }

  /** The tools that a model is shown. */
  async tools() {
    return (await this.#ask({ op: "tools" })).tools;
  }

  /** Adds a tool of the client's own. */
  async register({ name, description, inputSchema, handler, risk = "high", timeout = 60 }) {
    const before = this.#handlers.get(name);
    this.#handlers.set(name, handler);
    try {
      await this.#ask({ op: "register", register: { name, description, inputSchema, risk, timeout } });
    } catch (error) {
      if (before) this.#handlers.set(name, before);
      else this.#handlers.delete(name);
      throw error;
    }
  }

  /** Takes a tool of the client's own out again. */
  async unregister(name) {
    await this.#ask({ op: "unregister", unregister: name });
    this.#handlers.delete(name);
  }

  /** What was allowed for the session. */
  async grants() {
    return (await this.#ask({ op: "grants" })).grants;
  }

  /** Takes back what was allowed; what is left. */
  async revoke(grant) {
    return (await this.#ask({ op: "revoke", revoke: grant })).grants;
  }

  /** What the file tools have changed, newest first. */
  async history(limit = 50) {
    return toResult(await this.#ask({ op: "history", limit }));
  }

  /** Brings back what a change of a file tool has replaced. */
  async undo(change, path, { force = false } = {}) {
    return toResult(await this.#ask({ op: "undo", undo: change, path, force }));
  }

  // Commands.

  async #stage(data, signal) {
    const staged = plan(["bash", "-c", STAGE], { stdin: "" });
    const done = await this.#run({ ...staged, stdin: data }, { outputLimit: OUTPUT_MAX, signal });
    if (done.exitCode !== 0 || done.stdout.length === 0) {
      throw new IoError(`there is no room for the command's input: ${done.stderr}`, { kind: "io", metadata: done.metadata });
    }
    return done.stdout.toString();
  }

  async #run(planned, { outputLimit, onOutput, signal, exact }) {
    const collected = new Collected(outputLimit, onOutput);
    const { number, promise } = await this.#start("bash", planned.input, (...output) => collected.take(...output));
    const cancel = () => this._cancel(number);
    collected.cancel = cancel;
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) cancel();
    const timer = exact === undefined ? undefined : setTimeout(() => collected.expire(), exact * 1000);
    try {
      // What does not read its input, or has ended, does not need the rest of it.
      if (planned.stdin !== null) {
        for (const line of stdinLines(number, planned.stdin)) await this._write(line);
      }
      return collected.completed(await promise);
    } catch (error) {
      if (error instanceof Cancelled) signal?.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  async #file(script, path, more, content, outputLimit, signal) {
    if (path === "" || path.includes("\0")) throw new RangeError("a file needs a name without NUL");
    signal?.throwIfAborted();
    // Not an option, and `-` is not standard input.
    const name = path.startsWith("/") ? path : `./${path}`;
    const { project, central } = this.#info;
    const words = ["bash", "-c", script, "lazaret", name, ...more];
    const planned = plan(words, { stdin: content === null ? undefined : "", cwd: project, roots: [project, central] });
    // Of the long input nothing waits: the script reads all of it.
    const done = await this.#run({ ...planned, stdin: content }, { outputLimit, signal });
    // The executor keeps a copy of each long output: this one is a file's content.
    const copy = done.metadata.spill?.path;
    if (copy !== undefined) await this.#run(plan(["rm", "-f", "--", copy]), { outputLimit: OUTPUT_MAX });
    const error = fileError(done.exitCode, path);
    if (error) throw error;
    if (done.exitCode !== 0) {
      throw new IoError(`${path}: ${done.stderr}`, { kind: "io", metadata: done.metadata });
    }
    return done;
  }

  // Lines.

  /** Sends a line; resolves when there is room for more. */
  _write(line) {
    return this.#program.write(encode(line));
  }

  _cancel(number) {
    if (this.#calls.has(number)) void this._write({ op: "cancel", id: number });
  }

  #next() {
    if (this.#ended) throw this.#ended;
    if (this.#closing) throw new SessionEnded("the session is closed");
    this.#number += 1;
    return this.#number;
  }

  async #start(tool, input, onOutput) {
    const number = this.#next();
    const encoded = encode({ op: "call", id: number, tool, input });
    const { promise, resolve, reject } = deferred();
    // Nobody may wait for it any more when the session ends.
    promise.catch(() => {});
    this.#calls.set(number, { resolve, reject, onOutput, executing: [] });
    await this.#program.write(encoded);
    return { number, promise };
  }

  async #ask(line) {
    const number = this.#next();
    const encoded = encode({ ...line, id: number });
    const reply = deferred();
    this.#replies.set(number, reply);
    await this.#program.write(encoded);
    const answer = await reply.promise;
    if (answer.error) throw callError(answer);
    return answer;
  }

  #end(exit, error) {
    const ended = this.#ended ?? sessionEnded(exit, error, this.#program?.diagnostics ?? "", this.#closing);
    this.#ended = ended;
    this.#opening.reject(ended);
    for (const call of this.#calls.values()) {
      call.executing.forEach((controller) => controller.abort(ended));
      call.reject(ended);
    }
    this.#replies.forEach((reply) => reply.reject(ended));
    this.#calls.clear();
    this.#replies.clear();
  }

  async #take(line) {
    const call = this.#calls.get(line.id);
    switch (line.event) {
      case "output":
        await this.#takeOutput(call, line);
        break;
      case "result":
        this.#takeResult(call, line);
        break;
      case "grants":
      case "registered":
      case "unregistered":
      case "tools":
        this.#takeReply(line);
        break;
      case "approval":
        if (line.approval.channel !== "separate") void this.#approve(line);
        break;
      case "execute":
        void this.#execute(call, line);
        break;
      case "security_event":
        this.#takeSecurityEvent(line.securityEvent);
        break;
      case "hook":
        this.#takeHook(line.hook);
        break;
      case "ready":
        this.#takeReady(line);
        break;
      case "fault":
        this.#opening.reject(new SessionRefused(line.error.message, line.error.code));
        break;
      case "notice":
        if (this.#replies.has(line.id)) this.#takeReply(line);
        else this.#warn(line.error.message);
        break;
      // A later version may say more; what a client has to understand raises `protocol`.
      default:
    }
  }

  #takeReady({ protocol, version = null, session }) {
    if (protocol !== PROTOCOL) {
      throw new ProtocolError(`lazaret speaks version ${protocol} of its lines, and not ${PROTOCOL}`);
    }
    this.#info = Object.freeze({ protocol, version, hosts: [], alsoClosed: [], ...session });
    this.#opening.resolve();
  }

  async #takeOutput(call, line) {
    const chunk = line.chunk === undefined ? fromBase64(line.chunkBase64) : Buffer.from(line.chunk);
    if (!call?.onOutput) return;
    try {
      await call.onOutput(line.stream, chunk);
    } catch (error) {
      this.#warn(`the callback for output failed, and the call is cancelled: ${error}`);
      call.onOutput = undefined;
      this._cancel(line.id);
    }
  }

  #takeResult(call, line) {
    if (call) {
      this.#calls.delete(line.id);
      call.executing.forEach((controller) => controller.abort());
      call.resolve(line);
    } else if (this.#replies.has(line.id)) {
      this.#takeReply(line);
    } else if (line.error) {
      throw new ProtocolError(`lazaret refused a line: ${line.error.message}`);
    }
  }

  #takeReply(line) {
    this.#replies.get(line.id)?.resolve(line);
    this.#replies.delete(line.id);
  }

  #takeSecurityEvent(event) {
    if (event.maxViolations && event.violations >= event.maxViolations) {
      // `lazaret` makes no call any more; those under way have their results still.
      this.#ended = new TooManyViolations(
        `the session ended after ${event.violations} violations; it makes no more calls`,
      );
    }
    try {
      this.#options.onSecurityEvent?.(event);
    } catch (error) {
      this.#warn(`the callback for security events failed: ${error}`);
    }
  }

  #takeHook(ran) {
    try {
      this.#options.onHook?.(ran);
    } catch (error) {
      this.#warn(`the callback for hooks failed: ${error}`);
    }
  }

  // Callbacks.

  async #approve(line) {
    const { approval, tool, input = null, part = null } = line;
    const { forSession = null, wants = null, notTaken = null } = approval;
    let answer = "no";
    try {
      const given = await this.#options.onApproval?.({ ...approval, tool, input, part, forSession, wants, notTaken });
      if (isAnswer(given)) answer = given;
      else if (this.#options.onApproval) this.#warn(`an approval is answered with ${ANSWERS.join(", ")} or {minutes: 1 to 1440}, and not with ${given}`);
    } catch (error) {
      this.#warn(`the callback for approvals failed, and the answer is no: ${error}`);
    }
    await this._write({ op: "approve", id: line.id, approve: answer, ...partOf(line) });
  }

  // Carries out a call of a tool of the client's own. Its signal is aborted when the call has ended.
  async #execute(call, line) {
    const controller = new AbortController();
    call?.executing.push(controller);
    let encoded;
    try {
      encoded = encode({ ...(await this.#answer(line, controller.signal)), id: line.id, ...partOf(line) });
    } catch (error) {
      encoded = encode({ op: "error", error: this.#failure(line.tool, error), id: line.id, ...partOf(line) });
    }
    // What comes after the end of its call is for nobody.
    if (!controller.signal.aborted) await this.#program.write(encoded);
  }

  async #answer({ tool, input }, signal) {
    const handler = this.#handlers.get(tool);
    if (!handler) throw new ToolError("the client has no such tool any more", "not_found");
    const reply = await handler(input, { signal });
    const { text, structured } = typeof reply === "string" ? { text: reply } : reply;
    return { op: "result", result: text, ...(structured === undefined ? {} : { structured }) };
  }

  #failure(tool, error) {
    if (error instanceof ToolError) return { code: error.kind, message: cut(error.message) };
    // Its text may hold anything; the model needs to know no more than this.
    this.#warn(`the tool ${tool} failed: ${error}`);
    return { code: "io", message: `the tool failed: ${cut(String(error?.name ?? "Error"))}` };
  }

  #warn(message) {
    if (this.#options.onWarning) this.#options.onWarning(message);
    else process.emitWarning(message, "LazaretWarning");
  }
}

/** The output of one command, up to a limit. */
class Collected {
  cancel = () => {};
  #limit;
  #onOutput;
  #chunks = { stdout: [], stderr: [] };
  #sizes = { stdout: 0, stderr: 0 };
  #isTooLarge = false;
  #isExpired = false;

  constructor(limit, onOutput) {
    this.#limit = limit;
    this.#onOutput = onOutput;
  }

  take(stream, chunk) {
    const room = this.#limit - this.#sizes[stream];
    const kept = chunk.subarray(0, Math.max(room, 0));
    this.#chunks[stream].push(kept);
    this.#sizes[stream] += kept.length;
    if (chunk.length > room && !this.#isTooLarge) {
      this.#isTooLarge = true;
      this.cancel();
    }
    return this.#onOutput?.(stream, chunk);
  }

  /** Its time is over, to the fraction of a second; the executor counts whole ones. */
  expire() {
    this.#isExpired = true;
    this.cancel();
  }

  completed(line) {
    const stdout = Buffer.concat(this.#chunks.stdout);
    const stderr = Buffer.concat(this.#chunks.stderr);
    const { metadata } = line;
    if (this.#isTooLarge) throw new OutputTooLarge(this.#limit, stdout, stderr);
    if (!line.error || metadata.exitCode !== undefined || metadata.signal !== undefined) {
      return { exitCode: exitCode(metadata), stdout, stderr, metadata };
    }
    const error = callError(line, stdout, stderr);
    if (error instanceof NotFound || error instanceof IoError) {
      // A command that could not be started ends as a shell would say it.
      const why = Buffer.concat([stderr, Buffer.from(`${error.message}\n`)]);
      return { exitCode: error instanceof NotFound ? 127 : 126, stdout, stderr: why, metadata };
    }
    if (this.#isExpired && error instanceof Cancelled) {
      const known = { kind: "timeout", layer: "execution", metadata, stdout, stderr };
      throw new TimedOut("the command ran into its time limit and was ended", known);
    }
    throw error;
  }
}

/** What is started if nothing is given. In a cell LAZARET is 1, which tells programs where they are and names none. */
export function programName() {
  const named = process.env.LAZARET;
  return named && named !== "1" ? named : (packaged() ?? "lazaret");
}

/** The program in the package for this processor, which is an optional dependency of a published package. */
function packaged() {
  try {
    const manifest = createRequire(import.meta.url).resolve(`lazaret-sandbox-linux-${process.arch}/package.json`);
    return join(dirname(manifest), "bin/lazaret");
  } catch (error) {
    if (error.code === "MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}

function words(options) {
  const { program = programName(), log = true } = options;
  const given = ["session", "--raw-output"];
  for (const [name, value] of Object.entries({
    "--project": options.project,
    "--central": options.central,
    "--cwd": options.cwd,
    "--profile": options.profile,
    "--trust": options.trust,
    "--scope": options.scope,
    "--max-violations": options.maxViolations,
    "--socket": options.socket,
  })) {
    if (value !== undefined) given.push(name, String(value));
  }
  for (const [name, values] of Object.entries({
    "--allow-host": options.allowHosts,
    "--allow-net": options.allowNet,
    "--disable": options.disable,
  })) {
    for (const value of values ?? []) given.push(name, value);
  }
  if (!log) given.push("--no-log");
  return [...(Array.isArray(program) ? program : [program]), ...given];
}

function deferred() {
  let resolve;
  let reject;
  const promise = new Promise((...settle) => {
    [resolve, reject] = settle;
  });
  return { promise, resolve, reject };
}

function sessionEnded(exit, error, diagnostics, isClosed) {
  if (error) return new SessionEnded(`the session was ended: ${error.message}`, { diagnostics, cause: error });
  const { code: exitCode, signal } = exit;
  const known = { exitCode, signal, diagnostics };
  if (exitCode === 3) return new TooManyViolations("the session ended after too many violations", known);
  if (isClosed) return new SessionEnded("the session is closed", known);
  const last = diagnostics.split("\n").at(-1);
  return new SessionEnded(`lazaret ended with ${signal ?? `code ${exitCode}`}${last ? `: ${last}` : ""}`, known);
}

function toResult({ result, resultBase64, metadata, image = null }) {
  const data = resultBase64 === undefined ? Buffer.from(result) : fromBase64(resultBase64);
  return { text: result, data, metadata, image };
}

function fromBase64(text) {
  const bytes = Buffer.from(text, "base64");
  if (bytes.toString("base64") !== text) throw new ProtocolError("lazaret wrote what is not base64");
  return bytes;
}

function isAnswer(given) {
  if (ANSWERS.includes(given)) return true;
  const minutes = given?.minutes;
  return Number.isInteger(minutes) && minutes >= 1 && minutes <= 1440 && Object.keys(given).length === 1;
}

function partOf({ part }) {
  return part === undefined ? {} : { part };
}

function cut(message) {
  return Buffer.from(message).subarray(0, MESSAGE_MAX).toString().replace(/\uFFFD+$/, "");
}
