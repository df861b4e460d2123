// What stands beside a conversation: its session, how full its context is, and its calls with what was decided.

import { byId, clock, element } from "./elements.js";

/// Most calls in the table.
const CALLS_MAX = 500;

const ANSWERS = { once: "allowed once", session: "allowed for the session", no: "denied by you", no_and_stop: "denied by you, and stopped" };

/// What is known of one conversation beside its words.
export class Panels {
  #session = {};
  #layers = null;
  #missing = [];
  #context = null;
  #calls = new Map();
  #visible = false;

  /// Shows this conversation's, and no other one's.
  show() {
    this.#visible = true;
    this.#showSession();
    this.#showContext();
    byId("calls").replaceChildren(...[...this.#calls.values()].map((call) => call.row).reverse());
  }

  hide() {
    this.#visible = false;
  }

  take({ type, payload, timestamp }) {
    switch (type) {
      case "chat:stream-start":
        this.#session.Model = `${payload.model} (${payload.provider})`;
        this.#showSession();
        break;
      case "chat:session":
        Object.assign(this.#session, { Project: payload.project, Tier: payload.tier, Session: payload.session });
        this.#showSession();
        break;
      case "chat:turn-end":
      case "chat:stream-end":
        this.#context = payload.context?.window ? payload.context : this.#context;
        this.#showContext();
        break;
      case "chat:tool-start":
        this.#begin(payload, timestamp);
        break;
      case "chat:tool-confirm":
        this.#decide(payload.toolId, `asked by rule ${payload.rule}`);
        break;
      case "chat:hook":
        this.#hook(payload);
        break;
      case "chat:tool-result":
        this.#end(payload, timestamp);
        break;
      default:
        break;
    }
  }

  /// The user has answered the question of a call.
  answered(toolId, answer, rule) {
    this.#decide(toolId, `${ANSWERS[answer]} (rule ${rule})`);
  }

  #begin({ toolId, toolName }, timestamp) {
    const cells = ["", "", "allowed", "running", ""].map((text) => element("td", {}, text));
    cells[1].textContent = toolName;
    const row = element("tr", {}, element("td", {}, clock(timestamp)), ...cells);
    const [call, , decision, outcome, took] = cells;
    this.#calls.set(toolId, { row, call, decision, outcome, took, timestamp });
    if (this.#calls.size > CALLS_MAX) {
      const [oldest, { row }] = this.#calls.entries().next().value;
      this.#calls.delete(oldest);
      row.remove();
    }
    if (this.#visible) byId("calls").prepend(row);
  }

  /// Before a call no answer of a hook is a no.
  #hook({ hook, event, outcome, toolId }) {
    if (event !== "before_tool") return;
    if (outcome === "blocked") this.#decide(toolId, `denied by hook ${hook}`);
    if (outcome === "failed") this.#decide(toolId, `denied: no answer of hook ${hook}`);
  }

  #decide(toolId, text) {
    const call = this.#calls.get(toolId);
    if (call) call.decision.textContent = text;
  }

  #end({ toolId, status, error, metadata }, timestamp) {
    const call = this.#calls.get(toolId);
    if (!call) return;
    const denied = metadata?.denied ?? [];
    call.call.textContent = metadata?.call ?? "";
    call.took.textContent = `${timestamp - call.timestamp} ms`;
    call.outcome.textContent = status === "success" ? "done" : (error?.code ?? "error").replaceAll("_", " ");
    const kinds = { violation: "violation", approval_denied: "denied" };
    call.row.className = status === "success" ? "" : (kinds[error?.code] ?? "failed");
    const by = denied.map((one) => `${one.by?.kind ?? ""} ${one.by?.name ?? ""}: ${one.what?.kind ?? ""} ${one.what?.target ?? ""}`);
    if (by.length) {
      const decided = call.decision.textContent;
      call.decision.replaceChildren(`${decided === "allowed" ? "" : `${decided}; `}denied by ${[...new Set(by)].join(", ")}`);
    }
    if (metadata?.layers) {
      this.#layers = metadata.layers;
      this.#missing = metadata.orchestratorMissing ?? [];
      this.#showSession();
    }
  }

  #showSession() {
    if (!this.#visible) return;
    const fields = Object.entries(this.#session).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    byId("session").replaceChildren(...fields);
    const layers = this.#layers?.map((layer) => element("li", {}, layer)) ?? [element("li", { class: "empty" }, "Known after the first call.")];
    const missing = [this.#missing].flat().map((one) => element("li", { class: "missing" }, `missing: ${typeof one === "string" ? one : JSON.stringify(one)}`));
    byId("layers").replaceChildren(...layers, ...missing);
  }

  #showContext() {
    if (!this.#visible) return;
    const { usedTokens = 0, window = 0, share = 0 } = this.#context ?? {};
    byId("context").value = share;
    const percent = (share * 100).toFixed(share < 0.1 ? 1 : 0);
    byId("context-text").textContent = this.#context
      ? `${usedTokens.toLocaleString()} of ${window.toLocaleString()} tokens (${percent} %)`
      : "No answer yet.";
  }
}
