// The program `lazaret session` as a child: starting it, its lines, its end.

import { spawn } from "node:child_process";
import { NotInstalled, ProtocolError } from "./errors.js";

/** Bytes that `lazaret` takes as one line. */
export const LINE_MAX = 32 << 20;
// Bytes of a line that are taken of `lazaret`: more than its largest result.
const LINE_READ_MAX = 64 << 20;
const DIAGNOSTICS = 16 << 10;
// How long each stage of the end may take, in ms: the end of the input, then SIGTERM, after which `lazaret` takes up to five seconds.
const END_MS = 5000;
const TERMINATE_MS = 7000;

const NEWLINE = 10;

export class Program {
  #child;
  #diagnostics = "";
  #ended;

  /**
   * Starts it. It ends with this process, also if nobody closes it. A process session of its own keeps a Ctrl-C at the terminal from
   * ending it under the calls of a program that handles one. `take` gets each line, and may return a promise, which is waited for;
   * `end` the exit code and signal, and the error where a line could not be taken.
   */
  static async start(words, environment, take, end) {
    const program = new Program();
    const child = spawn(words[0], words.slice(1), { env: environment, detached: true, stdio: ["pipe", "pipe", "pipe"] });
    await new Promise((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", (cause) =>
        reject(new NotInstalled(`${words[0]} cannot be started: ${cause.message}; LAZARET names the program`, { cause })));
    });
    program.#child = child;
    child.on("error", () => {}); // A signal that could not be sent: it has ended.
    child.stdin.on("error", () => {}); // The end is seen where lines are read.
    child.stderr.setEncoding("utf8");
    child.stderr.on("data", (text) => {
      program.#diagnostics = (program.#diagnostics + text).slice(-DIAGNOSTICS);
    });
    const exited = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
    program.#ended = program.#read(take).then(
      async () => end(await exited, null),
      async (error) => {
        end(null, error);
        child.stdin.destroy();
        program.signal("SIGTERM");
        // A pipe that nobody reads would keep a program from its end.
        child.stdout.resume();
        await exited;
      },
    );
    return program;
  }

  get pid() {
    return this.#child.pid;
  }

  get diagnostics() {
    return this.#diagnostics.trimEnd();
  }

  /** Queues a line; resolves when there is room for more. */
  async write(encoded) {
    const { stdin } = this.#child;
    if (!stdin.writable || stdin.write(encoded)) return;
    await new Promise((resolve) => {
      const done = () => {
        stdin.off("drain", done).off("close", done);
        resolve();
      };
      stdin.once("drain", done).once("close", done);
    });
  }

  signal(name) {
    this.#child.kill(name);
  }

  /** Ends it, by force where it does not end by itself. */
  async end() {
    this.#child.stdin.end();
    for (const [ms, signal] of [[END_MS, "SIGTERM"], [TERMINATE_MS, "SIGKILL"]]) {
      if (await settledWithin(this.#ended, ms)) return;
      this.signal(signal);
    }
    await this.#ended;
  }

  async #read(take) {
    let parts = [];
    let size = 0;
    for await (let chunk of this.#child.stdout) {
      for (let at; (at = chunk.indexOf(NEWLINE)) >= 0; ) {
        parts.push(chunk.subarray(0, at));
        const line = Buffer.concat(parts);
        parts = [];
        size = 0;
        chunk = chunk.subarray(at + 1);
        await take(decode(line));
      }
      parts.push(chunk);
      size += chunk.length;
      if (size > LINE_READ_MAX) throw new ProtocolError(`lazaret wrote a line of more than ${LINE_READ_MAX} bytes`);
    }
  }
}

async function settledWithin(promise, ms) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A line in bytes. Throws a RangeError where it is longer than `lazaret` takes. */
export function encode(line) {
  const encoded = Buffer.from(`${JSON.stringify(line)}\n`);
  if (encoded.length > LINE_MAX) {
    throw new RangeError(`a call has at most ${LINE_MAX} bytes of JSON, this one ${encoded.length}`);
  }
  return encoded;
}

const UTF8 = new TextDecoder("utf-8", { fatal: true });

function decode(line) {
  let decoded;
  try {
    decoded = JSON.parse(UTF8.decode(line));
  } catch (cause) {
    throw new ProtocolError(`lazaret wrote what is not JSON: ${cause.message}`, { cause });
  }
  if (typeof decoded?.event !== "string") throw new ProtocolError("lazaret wrote a line without an event");
  return decoded;
}
