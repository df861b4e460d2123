// The connection to the server: the token, requests over HTTP, messages over the WebSocket, and coming back when it breaks.

const PAUSE_MS = 500;
const PAUSE_MAX_MS = 8000;

/// Takes the token out of the address, so that it is neither shown nor copied with it.
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) history.replaceState(null, "", location.pathname);
  return token;
}

/// Names of ours as this page writes them; a server with `--wire-case snake` writes them in the other way.
function camel(payload) {
  const name = (key) => key.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  const ours = new Set(["usage", "context", "error"]);
  const fields = Object.entries(payload ?? {}).map(([key, value]) => [
    name(key),
    ours.has(key) && value !== null && typeof value === "object" ? camel(value) : value,
  ]);
  return Object.fromEntries(fields);
}

export class Connection {
  #token;
  #socket = null;
  #waiting = new Map();
  #number = 0;
  #pause = PAUSE_MS;
  #opened = false;

  /// `heard` gets each message, `changed` each state: `open`, `lost`, `refused`.
  constructor(token, heard, changed) {
    this.#token = token;
    this.heard = heard;
    this.changed = changed;
    this.#connect();
  }

  #connect() {
    this.#opened = false;
    const socket = new WebSocket(`ws://${location.host}/ws`, ["lazaret.v1", `lazaret.token.${this.#token}`]);
    this.#socket = socket;
    socket.addEventListener("message", (event) => this.#take(JSON.parse(event.data)));
    socket.addEventListener("close", () => this.#lost());
  }

  #take(message) {
    message.payload = camel(message.payload);
    const { type, payload } = message;
    if (type === "server:hello") {
      this.#opened = true;
      this.#pause = PAUSE_MS;
      this.changed("open");
    }
    const waiting = this.#waiting.get(payload.requestId);
    if (waiting && (type === "request:ok" || type === "request:error")) {
      this.#waiting.delete(payload.requestId);
      if (type === "request:ok") waiting.resolve(payload);
      else waiting.reject(new Error(payload.message));
      return;
    }
    this.heard(message);
  }

  async #lost() {
    for (const { reject } of this.#waiting.values()) reject(new Error("the connection broke"));
    this.#waiting.clear();
    // A browser does not say why it got no WebSocket; a plain request tells.
    if (!this.#opened) {
      const answer = await this.#fetch("/health").catch(() => null);
      if (answer?.status === 401 || answer?.status === 403) return this.changed("refused");
    }
    this.changed("lost");
    setTimeout(() => this.#connect(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, PAUSE_MAX_MS);
  }

  /// Sends a message; what is answered to it.
  request(type, payload) {
    if (this.#socket.readyState !== WebSocket.OPEN) return Promise.reject(new Error("there is no connection"));
    const requestId = `r${++this.#number}`;
    this.#socket.send(JSON.stringify({ type, payload, requestId }));
    return new Promise((resolve, reject) => this.#waiting.set(requestId, { resolve, reject }));
  }

  #fetch(path, more = {}) {
    const headers = { Authorization: `Bearer ${this.#token}`, ...more.headers };
    return fetch(path, { ...more, headers, cache: "no-store", credentials: "omit" });
  }

  /// What is at a path.
  async get(path) {
    return this.#answer(await this.#fetch(path));
  }

  /// Changes what is at a path.
  async put(path, body) {
    const headers = { "Content-Type": "application/json" };
    return this.#answer(await this.#fetch(path, { method: "PUT", headers, body: JSON.stringify(body) }));
  }

  async #answer(response) {
    const body = await response.json();
    if (!response.ok) throw new Error(body.error?.message ?? `status ${response.status}`);
    return body;
  }
}
