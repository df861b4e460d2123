// Elements that are made of text. What a model, a tool or a server has said goes through here, and is never read as markup.

/// An element with attributes of ours and children that are elements or texts.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, String(value));
  }
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== ""));
  return made;
}

/// The element of this id, which the page has.
export function byId(id) {
  return document.getElementById(id);
}

/// A word with letters of Latin and of an alphabet that looks like it.
const LOOKALIKE = /[\p{L}\p{M}\p{N}_-]*(?:\p{Script=Latin}[\p{L}\p{M}\p{N}_-]*[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}]|[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}][\p{L}\p{M}\p{N}_-]*\p{Script=Latin})[\p{L}\p{M}\p{N}_-]*/gu;

/// A text as children of an element, with each word marked that mixes alphabets: `pаypal` is not `paypal`.
export function marked(text) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(LOOKALIKE)) {
    parts.push(text.slice(at, match.index), element("mark", { title: "letters of several alphabets" }, match[0]));
    at = match.index + match[0].length;
  }
  return [...parts, text.slice(at)];
}

/// A button that does something.
export function button(label, act, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", act);
  return made;
}

/// A time of day.
export function clock(timestamp) {
  const time = new Date(timestamp);
  const date = time.toISOString();
  return element("time", { datetime: date }, time.toLocaleTimeString([], { hour12: false }));
}

/// Lines of a difference, each by its kind, and an element behind them; the sign stays, so that colour is not all that tells them apart.
export function difference(text, end = null) {
  const kinds = { "+": "added", "-": "removed", "@": "place" };
  const lines = text.replace(/\n$/, "").split("\n");
  const made = lines.map((line) => element("span", { class: kinds[line[0]] ?? "same" }, line + "\n"));
  return element("pre", { class: "difference", tabindex: "0", "aria-label": "What would change" }, ...made, end);
}
