// A conversation with a model whose tools work in cells: a client of `lazaret serve`.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { LazaretError, NotInstalled, ProtocolError } from "./errors.js";
import { programName } from "./session.js";

// Bytes of an event that are taken of `lazaret`.
const EVENT_MAX = 64 << 20;
const FIRST_LINE_MAX = 64 << 10;
const DIAGNOSTICS = 16 << 10;
// How long the server may take to end, in ms: it gives its runs five seconds.
const END_MS = 12_000;

/** The server does not begin, or refuses a request; `code` is Lazaret's name for the reason, where it gave one. */
export class ChatError extends LazaretError {
  constructor(message, code = null) {
    super(message);
    this.code = code;
  }
}

export class Chat {
  #child;
  #address;
  #token;
  #onApproval;
  #diagnostics = "";
  #exited;

  /** Starts the server, which ends with this process. */
  static async open(options = {}) {
    const chat = new Chat();
    await chat.#start(options);
    return chat;
  }

  constructor() {
    /** The ID of the conversation in events, records and transcripts. */
    this.conversationId = randomUUID();
  }

  get pid() {
    return this.#child.pid;
  }

  /** The end of what it wrote to standard error. */
  get diagnostics() {
    return this.#diagnostics.trimEnd();
  }

  async #start({ onApproval = null, environment, ...options }) {
    this.#onApproval = onApproval;
    const words = command(options);
    const child = spawn(words[0], words.slice(1), { env: environment, detached: true, stdio: ["pipe", "pipe", "pipe"] });
    await new Promise((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", (cause) =>
        reject(new NotInstalled(`${words[0]} cannot be started: ${cause.message}; LAZARET names the program`, { cause })));
    });
    this.#child = child;
    child.on("error", () => {}); // A signal that could not be sent: it has ended.
    child.stdin.on("error", () => {});
    child.stderr.setEncoding("utf8");
    child.stderr.on("data", (text) => {
      this.#diagnostics = (this.#diagnostics + text).slice(-DIAGNOSTICS);
    });
    this.#exited = new Promise((resolve) => child.once("close", resolve));
    const ready = await firstLine(child.stdout);
    if (ready === null) {
      await this.close();
      throw new ChatError(`lazaret serve has ended: ${this.diagnostics}`);
    }
    ({ address: this.#address, token: this.#token } = object(ready));
    if (typeof this.#address === "string" && typeof this.#token === "string") return;
    await this.close();
    throw new ProtocolError("the first line of lazaret serve has no address and token");
  }

  /** Ends the runs under way, the sessions and the server. */
  async close() {
    this.#child.stdin.end();
    this.#child.stdout.resume();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), END_MS);
    await this.#exited;
    clearTimeout(timer);
  }

  /** Says something, and waits for the end of the run. `fields` are those of `POST /run`, such as `pack` and `systemPrompt`. */
  async send(prompt, { onEvent = () => {}, ...fields } = {}) {
    for await (const event of this.stream(prompt, fields)) {
      if (event.type === "reply") return event.reply;
      onEvent(event);
    }
    throw new ProtocolError("the run has no end");
  }

  /** The events of a run as they come; the last has the type `reply`. To stop reading ends the run. */
  async *stream(prompt, fields = {}) {
    const body = { prompt, conversationId: this.conversationId, approvals: this.#onApproval !== null, ...fields };
    const ending = new AbortController();
    try {
      const response = await this.#post("/run/stream", body, ending.signal);
      for await (const line of lines(response.body)) {
        if (!line.startsWith("data: ")) continue;
        const event = await this.#take(object(line.slice("data: ".length)));
        yield event;
        if (event.type === "reply") return;
      }
    } finally {
      ending.abort();
    }
  }

  async #take({ kind, data }) {
    if (kind === "_run_done_" || kind === "_run_error_") return { type: "reply", reply: reply(data) };
    if (typeof kind !== "string" || typeof data !== "object" || data === null) {
      throw new ProtocolError("lazaret wrote an event without a kind");
    }
    if (kind === "chat:tool-confirm" && this.#onApproval !== null) await this.#answer(data);
    return { type: kind, payload: data };
  }

  async #answer(asked) {
    let answer = "no";
    try {
      answer = await this.#onApproval(asked);
    } finally {
      const { toolId, digest, part } = asked;
      await (await this.#post(`/runs/${asked.messageId}/approve`, { toolId, digest, part, answer })).text();
    }
  }

  async #post(path, body, signal) {
    const headers = { authorization: `Bearer ${this.#token}`, "content-type": "application/json" };
    const response = await fetch(`http://${this.#address}${path}`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal,
    });
    if (response.ok) return response;
    const { error = {} } = object(await response.text());
    throw new ChatError(error.message ?? response.statusText, error.code);
  }
}

function command({ program = programName(), arguments: more = [], ...named }) {
  const words = [...(typeof program === "string" ? [program] : program), "serve", "--listen", "127.0.0.1:0"];
  for (const name of ["project", "central", "provider", "model", "profile", "trust"]) {
    if (named[name] !== undefined) words.push(`--${name}`, named[name]);
  }
  return [...words, ...more];
}

function reply(data) {
  const meta = data?._meta;
  if (typeof meta !== "object" || meta === null) throw new ChatError("the run did not begin, or its server has ended");
  const { text = "", result = null } = data;
  return { text, reason: meta.reason ?? "error", error: meta.error ?? null, result };
}

/** The first line of a stream; null where it ends before, or has too many bytes. */
async function firstLine(stream) {
  stream.setEncoding("utf8");
  let text = "";
  return new Promise((resolve) => {
    const take = (chunk) => {
      text += chunk;
      const end = text.indexOf("\n");
      if (end < 0 && text.length <= FIRST_LINE_MAX) return;
      stream.off("data", take);
      resolve(end < 0 ? null : text.slice(0, end));
    };
    stream.on("data", take);
    stream.once("end", () => resolve(null));
  });
}

async function* lines(body) {
  const decoder = new TextDecoder();
  let parts = [];
  let size = 0;
  for await (const bytes of body) {
    const pieces = decoder.decode(bytes, { stream: true }).split("\n");
    for (const piece of pieces.slice(0, -1)) {
      yield parts.join("") + piece;
      parts = [];
      size = 0;
    }
    const rest = pieces[pieces.length - 1];
    parts.push(rest);
    size += rest.length;
    if (size > EVENT_MAX) throw new ProtocolError(`lazaret wrote an event of more than ${EVENT_MAX} bytes`);
  }
}

function object(text) {
  let decoded;
  try {
    decoded = JSON.parse(text);
  } catch (cause) {
    throw new ProtocolError(`lazaret wrote what is not JSON: ${cause.message}`, { cause });
  }
  if (typeof decoded !== "object" || decoded === null) throw new ProtocolError("lazaret wrote what is no object");
  return decoded;
}
