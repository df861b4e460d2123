// One conversation as it is read: what was said, and a block for each call.

import { difference, element } from "./elements.js";

/// Most characters of one call's output that stay in the page.
const OUTPUT_MAX = 200_000;
/// Most characters of an input in the line of its call.
const BRIEF_MAX = 80;

const REASONS = {
  done: "Done.",
  finished: "The task is finished.",
  length: "The answer was cut: it was longer than the model may answer.",
  refused: "The model or its vendor refused.",
  turn_limit: "No turn was left.",
  context_budget: "The context was nearly full.",
  quality_gate: "What the model ended with does not fulfil its pack.",
  violations: "Ended: too many attempts to leave what calls may touch.",
  cancelled: "Stopped.",
  timeout: "The time of the run was over.",
  error: "Ended by an error.",
};

function brief(input) {
  const values = Object.values(input ?? {});
  const first = values.find((value) => typeof value === "string") ?? (values.length ? JSON.stringify(input) : "");
  const line = first.replace(/\s+/g, " ");
  return line.length > BRIEF_MAX ? `${line.slice(0, BRIEF_MAX)}…` : line;
}

function decoded(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

/// Why something was denied, and what would allow it.
function finding({ kind, count, objects, why, advice }) {
  const names = objects.map(({ target, state }) => (state ? `${target} (${state})` : target));
  const unnamed = count - names.length;
  const more = unnamed > 0 ? ` and ${unnamed} more` : "";
  const text = `found: ${kind.replaceAll("_", " ")}: ${names.join(", ")}${more}: ${why}${advice ? ` [${advice}]` : ""}`;
  return element("li", { class: "denial" }, text);
}

function denial({ what, by, why, remedy, count }) {
  const times = count > 1 ? ` (${count} times)` : "";
  const policy = remedy?.policy ?? (typeof remedy === "string" ? remedy : undefined);
  return element(
    "li",
    { class: "denial" },
    element("strong", {}, `Denied: ${what?.kind ?? ""} ${what?.target ?? ""}${times}`),
    element("p", {}, why ?? ""),
    element("p", { class: "by" }, by ? `By ${by.kind} ${by.name}.` : ""),
    policy && element("p", {}, "To allow it, in your policy: ", element("code", {}, policy)),
  );
}

/// What an input has in its fields.
function fields(input) {
  const pairs = Object.entries(input ?? {}).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
    return [element("dt", {}, name), element("dd", {}, element("pre", {}, text))];
  });
  return element("dl", { class: "input" }, ...pairs.flat());
}

/// What a hook has done to a call or a session, as the terminal says it.
function hookLine({ hook, event, toolName, outcome, message, askAgent }) {
  if (outcome === "failed") return `Hook ${hook} (${event}) ${message ?? "gave no answer"}`;
  const blocked = event === "after_tool" ? "has blocked the result" : "has blocked this";
  const did = { blocked, rewrote: `has changed the input of ${toolName}`, asked: "tells the model" }[outcome] ?? outcome;
  const words = [message, askAgent].filter(Boolean).join(" ");
  return `Hook ${hook} ${did}${words && `: ${words}`}`;
}

/// The block of one call: open while it runs, folded when it is done.
class ToolBlock {
  #connected = new Map();
  #touched = false;
  #length = 0;

  constructor(payload) {
    this.toolName = payload.toolName;
    this.state = element("span", { class: "state" }, "running");
    this.brief = element("code", {}, brief(payload.input));
    const summary = element(
      "summary",
      {},
      element("span", { class: "tool" }, payload.toolName),
      " ",
      this.brief,
      " ",
      this.state,
    );
    this.output = element("pre", { class: "output", tabindex: "0", "aria-label": `Output of ${payload.toolName}`, hidden: true });
    this.inner = element("div", { class: "inner" });
    this.denials = element("ul", { class: "denials" });
    this.hooks = element("div", { class: "hooks" });
    this.connections = element("ul", { class: "connections", "aria-label": "Connections" });
    this.details = element("details", { open: true }, summary, fields(payload.input), this.output, this.inner);
    summary.addEventListener("click", () => (this.#touched = true));
    this.root = element("section", { class: "call running", "aria-label": `Call of ${payload.toolName}` }, this.details, this.hooks, this.connections, this.denials);
  }

  /// The line of the call says what runs, and not what the model has asked for before a hook has changed it.
  hook(note, { toolName, outcome, input }) {
    this.hooks.append(note);
    if (outcome === "rewrote" && toolName === this.toolName) this.brief.textContent = `${brief(input)} (changed by a hook)`;
  }

  /// A connection of its command, with what became of it. Further ones of the same kind only raise its number.
  connected({ host, port, verdict, count, why }) {
    const key = `${host} ${port} ${verdict}`;
    const known = this.#connected.get(key) ?? { count: 0, line: element("li", { class: verdict, title: why ?? "" }) };
    if (known.count === 0) this.connections.append(known.line);
    known.count += count;
    const place = host ? `${host}:${port}` : "other hosts";
    known.line.textContent = `${place}: ${verdict.replaceAll("_", " ")}${known.count > 1 ? ` (${known.count} times)` : ""}`;
    this.#connected.set(key, known);
  }

  print(stream, text) {
    this.output.hidden = false;
    const atEnd = this.output.scrollHeight - this.output.scrollTop - this.output.clientHeight < 8;
    const last = this.output.lastElementChild;
    if (last?.className === stream && last.textContent.length < 4096) last.append(text);
    else this.output.append(element("span", { class: stream }, text));
    this.#length += text.length;
    while (this.#length > OUTPUT_MAX && this.output.childElementCount > 1) {
      this.#length -= this.output.firstElementChild.textContent.length;
      this.output.firstElementChild.remove();
    }
    if (atEnd) this.output.scrollTop = this.output.scrollHeight;
  }

  end({ status, result, error, metadata }) {
    const denied = metadata?.denied ?? [];
    const failed = status !== "success";
    this.root.classList.replace("running", failed ? "failed" : "succeeded");
    this.state.textContent = failed ? (error?.code ?? "error").replaceAll("_", " ") : "done";
    if (this.output.hidden && result) this.print("result", result);
    else if (error) this.print("error", `${error.message}\n`);
    this.denials.append(...(metadata?.found ?? []).map(finding), ...denied.map(denial));
    if (!this.#touched) this.details.open = false;
  }
}

export class Conversation {
  #blocks = new Map();
  #text = null;
  #shown = new Set();

  constructor(id, title) {
    this.id = id;
    this.title = title;
    /// The number of the last event that was heard.
    this.sequence = 0;
    this.running = false;
    this.root = element("div", { class: "conversation" });
    /// What its user has said, by the run that it began.
    this.asked = new Map();
  }

  /// Shows what the user has said, once, before the run that it began.
  said(messageId, content) {
    if (messageId) {
      if (this.#shown.has(messageId)) return;
      this.#shown.add(messageId);
    }
    this.#text = null;
    this.root.append(element("article", { class: "user" }, element("h3", {}, "You"), element("p", { class: "text" }, content)));
  }

  note(kind, text, role) {
    this.#text = null;
    this.root.append(element("p", { class: `note ${kind}`, role }, text));
  }

  #place(payload) {
    return this.#blocks.get(payload.parentToolId)?.inner ?? this.root;
  }

  /// Adds to the text that is being written, or begins another one.
  #write(kind, payload) {
    const place = this.#place(payload);
    const key = `${kind} ${payload.messageId} ${payload.parentToolId ?? ""} ${payload.index}`;
    if (this.#text?.key !== key) {
      const text = element("p", { class: "text" });
      const made =
        kind === "thinking"
          ? element("details", { class: "thinking" }, element("summary", {}, "Thinking"), text)
          : element("article", { class: "model" }, element("h3", {}, "Model"), text);
      place.append(made);
      this.#text = { key, text };
    }
    this.#text.text.append(payload.content);
  }

  /// What a hook did stands with the call that it is about.
  #hook(payload, block) {
    if (payload.outcome === "allowed") return;
    const note = element("div", { class: "hook" }, element("p", { class: "note notice" }, hookLine(payload)), payload.input && fields(payload.input));
    if (block) return block.hook(note, payload);
    this.#text = null;
    this.root.append(note);
  }

  /// Takes an event; what it says of calls goes to the panels too.
  take({ type, payload }) {
    const block = this.#blocks.get(payload.toolId);
    switch (type) {
      case "chat:stream-start":
        this.running = true;
        if (this.asked.has(payload.messageId)) this.said(payload.messageId, this.asked.get(payload.messageId));
        break;
      case "chat:session":
        this.project = payload.project;
        this.note("session", `${payload.replaced ? "A new session" : "Session"} in ${payload.project}, ${payload.tier}.`);
        break;
      case "chat:text-delta":
        this.#write("text", payload);
        break;
      case "chat:thinking-delta":
        this.#write("thinking", payload);
        break;
      case "chat:tool-start": {
        this.#text = null;
        const made = new ToolBlock(payload);
        this.#blocks.set(payload.toolId, made);
        this.#place(payload).append(made.root);
        break;
      }
      case "chat:tool-delta":
        block?.print(payload.stream, payload.chunk ?? decoded(payload.chunkBase64));
        break;
      case "chat:tool-result":
        block?.end(payload);
        break;
      case "chat:connection":
        block?.connected(payload);
        break;
      case "chat:security-event":
        this.note("failure", `Violation ${payload.violations}${payload.maxViolations ? ` of ${payload.maxViolations}` : ""}: ${payload.message}`, "alert");
        break;
      case "chat:hook":
        this.#hook(payload, block);
        break;
      case "chat:retry":
        this.note("notice", `The provider was not ready (${payload.message}); attempt ${payload.attempt} follows.`);
        break;
      case "chat:notice":
        this.note("notice", payload.message);
        break;
      case "chat:error":
        this.note("failure", `${payload.code}: ${payload.message}`, "alert");
        break;
      case "chat:stream-end":
        this.running = false;
        if (payload.result) this.root.append(difference(JSON.stringify(payload.result, null, 1)));
        if (payload.reason !== "done") this.note("end", REASONS[payload.reason] ?? payload.reason);
        break;
      default:
        break;
    }
  }

  /// What is remembered begins later than what is shown.
  gap() {
    this.note("notice", "Earlier events are not remembered any more.");
  }
}
