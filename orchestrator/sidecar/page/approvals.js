// Calls that wait for an answer. Nothing of them has started; no answer in time is a no.

import { button, byId, difference, element } from "./elements.js";

/// How long a question stands before a yes counts: what was typed before it is no answer to it.
const ARMED_MS = 400;
/// Events that are played again may have their result right behind them.
const FOCUS_MS = 120;

const COVERS = {
  rule: (rule) => `the calls that rule ${rule} asks about`,
  call: () => "this very call again",
};

export class Approvals {
  #cards = new Map();
  #place = byId("approvals");

  /// `answer` sends one, and `changed` hears how many wait.
  constructor(answer, changed) {
    this.answer = answer;
    this.changed = changed;
    setInterval(() => this.#tick(), 250);
  }

  #key({ conversationId, toolId, part }) {
    return JSON.stringify([conversationId, toolId, part ?? null]);
  }

  /// A call is asked about.
  ask(payload, timestamp) {
    const key = this.#key(payload);
    this.#remove(key);
    const card = this.#card(payload, key);
    card.until = timestamp + payload.secondsLeft * 1000;
    card.before = document.activeElement;
    this.#cards.set(key, card);
    this.#place.append(card.root);
    this.#tick();
    setTimeout(() => this.#focus(card), FOCUS_MS);
    setTimeout(() => card.yes.forEach((one) => (one.disabled = false)), ARMED_MS);
    this.changed(this.#cards.size);
  }

  #focus(card) {
    // The question and not a button: Enter and space say nothing by accident. Who is at another question stays there.
    if (card.root.isConnected && !this.#place.contains(document.activeElement)) card.root.focus();
  }

  #card(payload, key) {
    const id = `question-${this.#place.childElementCount}-${payload.digest.slice(0, 12)}`;
    const error = element("p", { role: "alert", class: "failure" });
    const timer = element("span", { role: "timer", "aria-live": "off" });
    const card = { payload, timer, error, yes: [], all: [] };
    const say = (answer) => () => this.#say(key, card, answer);
    if (payload.channel !== "separate") {
      card.yes.push(button("Allow once", say("once"), { disabled: true, class: "yes" }));
      if (COVERS[payload.session]) card.yes.push(button("Allow for the session", say("session"), { disabled: true }));
      card.all.push(...card.yes, button("Deny", say("no"), { class: "no" }), button("Deny and stop", say("no_and_stop")));
    }
    card.root = element(
      "div",
      { class: "question", role: "alertdialog", tabindex: "-1", "aria-labelledby": `${id}-h`, "aria-describedby": `${id}-d` },
      element("h3", { id: `${id}-h` }, `Allow ${payload.toolName}? `, element("span", { class: "risk" }, `${payload.risk} risk`)),
      element(
        "div",
        { id: `${id}-d` },
        element("p", {}, payload.why),
        element("p", { class: "by" }, `Asked by rule ${payload.rule}. `, payload.again ? "An answer before was rejected. " : ""),
        payload.diff && payload.input?.path ? element("p", {}, "File: ", element("code", {}, payload.input.path)) : null,
        payload.diff ? difference(payload.diff) : this.#input(payload.input),
      ),
      element("p", {}, timer, COVERS[payload.session] ? ` “For the session” covers ${COVERS[payload.session](payload.rule)}.` : ""),
      payload.channel === "separate"
        ? element("p", {}, "The policy takes answers from ", element("code", {}, "lazaret approve"), " only.")
        : element("div", { class: "buttons" }, ...card.all),
      element("p", { class: "digest" }, "SHA-256 ", element("code", {}, payload.digest)),
      error,
    );
    return card;
  }

  #input(input) {
    const text = input === undefined ? "The input has more than 64 KiB and is not shown." : null;
    if (text) return element("p", { class: "failure" }, text);
    const only = Object.values(input);
    const shown = only.length === 1 && typeof only[0] === "string" ? only[0] : JSON.stringify(input, null, 1);
    return element("pre", { tabindex: "0", "aria-label": "The input of the call" }, shown);
  }

  async #say(key, card, answer) {
    const { conversationId, toolId, part } = card.payload;
    // A button that is disabled loses the focus to nobody.
    card.root.focus();
    card.all.forEach((one) => (one.disabled = true));
    try {
      await this.answer({ conversationId, toolId, part, answer }, card.payload);
      this.#remove(key);
    } catch (error) {
      card.error.textContent = error.message;
      card.all.forEach((one) => (one.disabled = false));
    }
  }

  /// A call is over, or a whole run: its questions are too.
  over(conversationId, toolId) {
    for (const [key, { payload }] of this.#cards) {
      if (payload.conversationId === conversationId && (toolId === undefined || payload.toolId === toolId)) this.#remove(key);
    }
  }

  #remove(key) {
    const card = this.#cards.get(key);
    if (!card) return;
    const had = card.root.contains(document.activeElement);
    this.#cards.delete(key);
    card.root.remove();
    const next = this.#cards.values().next().value?.root;
    if (had) (next ?? (card.before?.isConnected && card.before !== document.body ? card.before : byId("text"))).focus();
    this.changed(this.#cards.size);
  }

  #tick() {
    for (const card of this.#cards.values()) {
      const left = Math.max(0, Math.ceil((card.until - Date.now()) / 1000));
      card.timer.textContent = left > 0 ? `${left} s left, then it is denied.` : "The time is over: it is denied.";
      card.root.classList.toggle("urgent", left <= 10);
      if (left === 0) card.all.forEach((one) => (one.disabled = true));
    }
  }
}
