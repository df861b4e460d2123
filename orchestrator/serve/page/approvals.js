// Calls that wait for an answer. Nothing of them has started; no answer in time is a no.

import { button, byId, difference, element, marked } from "./elements.js";

/// How long a question stands before a yes counts: what was typed before it is no answer to it.
const ARMED_MS = 400;
/// Events that are played again may have their result right behind them.
const FOCUS_MS = 120;

/// A yes needs the whole input on the screen, down to this element behind it.
const END = "The input ends here.";
/// How much of it: what is rounded to pixels may never be seen to the last bit.
const WHOLE = 0.9;

export class Approvals {
  #cards = new Map();
  #place = byId("approvals");

  /// `answer` sends one, `changed` hears how many wait, and `projectOf` knows where a conversation works.
  constructor(answer, changed, projectOf = () => undefined) {
    this.answer = answer;
    this.changed = changed;
    this.projectOf = projectOf;
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
    card.until = timestamp + payload.expiresS * 1000;
    card.before = document.activeElement;
    this.#cards.set(key, card);
    this.#place.append(card.root);
    this.#tick();
    setTimeout(() => this.#focus(card), FOCUS_MS);
    setTimeout(() => {
      card.armed = true;
      this.#enable(card);
    }, ARMED_MS);
    this.#watch(card);
    this.changed(this.#cards.size);
  }

  /// Waits until the end of the input has been on the screen. A part of the page that is scrolled away is not on it.
  #watch(card) {
    if (card.yes.length === 0) return;
    const watcher = new IntersectionObserver((entries) => {
      if (!entries.some((one) => one.intersectionRatio >= WHOLE)) return;
      watcher.disconnect();
      card.seen = true;
      card.hint.hidden = true;
      this.#enable(card);
    }, { threshold: WHOLE });
    watcher.observe(card.end);
  }

  /// Nothing is answered twice, nothing after its time, and nothing is allowed before it could be read to its end.
  #enable(card) {
    const open = !card.said && Date.now() < card.until;
    card.all.forEach((one) => (one.disabled = !open));
    card.yes.forEach((one) => (one.disabled = !(open && card.armed && card.seen)));
  }

  #focus(card) {
    // The question and not a button: Enter and space say nothing by accident. Who is at another question stays there.
    if (card.root.isConnected && !this.#place.contains(document.activeElement)) card.root.focus();
  }

  #card(payload, key) {
    const id = `question-${this.#place.childElementCount}-${payload.digest.slice(0, 12)}`;
    const error = element("p", { role: "alert", class: "failure" });
    const timer = element("span", { role: "timer", "aria-live": "off" });
    const card = { payload, timer, error, yes: [], all: [], armed: false, seen: false, said: false };
    card.end = element("span", { class: "end" }, END);
    const input = this.#input(payload, card.end);
    const shown = input !== null;
    card.hint = element("p", { class: "hint" }, "Scroll to the end of the input to allow it.");
    const asks = payload.channel !== "separate";
    const say = (answer) => () => this.#say(key, card, answer);
    if (asks) {
      if (shown) card.yes.push(button("Allow once", say("once"), { disabled: true, class: "yes" }));
      if (shown && payload.forSession) card.yes.push(button("Allow for the session", say("session"), { disabled: true }));
      card.all.push(...card.yes, button("Deny", say("no"), { class: "no" }), button("Deny and stop", say("no_and_stop")));
    }
    card.root = element(
      "div",
      { class: "question", role: "alertdialog", tabindex: "-1", "aria-labelledby": `${id}-h`, "aria-describedby": `${id}-d` },
      element("h3", { id: `${id}-h` }, `Allow ${payload.toolName}? `, element("span", { class: "risk" }, `${payload.risk} risk`)),
      element(
        "div",
        { id: `${id}-d` },
        this.#origin(payload),
        element("p", {}, payload.why),
        element("p", { class: "by" }, `Asked by rule ${payload.rule}. `, payload.notTaken ? "An answer before was rejected. " : ""),
        payload.diff && payload.path ? element("p", {}, "File: ", element("code", {}, payload.path)) : null,
        input ?? element("p", { class: "failure" }, "The input has more than 64 KiB and is not shown, so it cannot be allowed here."),
      ),
      element("p", {}, timer, payload.forSession ? ` “For the session” covers ${payload.forSession}.` : ""),
      asks && shown ? card.hint : null,
      asks
        ? element("div", { class: "buttons" }, ...card.all)
        : element("p", {}, "The policy takes answers from ", element("code", {}, "lazaret approve"), " only."),
      element("p", { class: "digest" }, "SHA-256 ", element("code", {}, payload.digest)),
      error,
    );
    return card;
  }

  /// Whose question it is: several conversations may ask at once.
  #origin({ conversationId }) {
    const project = this.projectOf(conversationId);
    return element(
      "p",
      { class: "by" },
      "Conversation ",
      element("code", {}, conversationId),
      project ? ", project " : null,
      project ? element("code", {}, project) : null,
    );
  }

  /// All of what is asked about, scrolled as one; nothing if the server does not send it. A command comes first and as text, and
  /// the other fields by name: a model cannot put one out of sight by the order in which it writes them.
  #input({ input, diff, path }, end) {
    if (input === undefined) return null;
    if (diff && path) return difference(diff, end);
    const isText = (name) => name === "command" && typeof input[name] === "string";
    const names = Object.keys(input).sort((one, other) => isText(other) - isText(one) || (one < other ? -1 : 1));
    const shown = names.map((name) => {
      const value = isText(name) ? input[name] : JSON.stringify(input[name], null, 1);
      return names.length === 1 && isText(name) ? value : `${name}: ${value}`;
    });
    return element("pre", { tabindex: "0", "aria-label": "The input of the call" }, ...marked(shown.join("\n")), end);
  }

  async #say(key, card, answer) {
    const { conversationId, toolId, part, digest } = card.payload;
    // A button that is disabled loses the focus to nobody.
    card.root.focus();
    card.said = true;
    this.#enable(card);
    try {
      await this.answer({ conversationId, toolId, part, digest, answer }, card.payload);
      this.#remove(key);
    } catch (error) {
      card.error.textContent = error.message;
      card.said = false;
      this.#enable(card);
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
      if (left === 0) this.#enable(card);
    }
  }
}
