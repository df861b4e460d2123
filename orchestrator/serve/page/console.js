// The console: which conversation is shown, and what its user does.

import { Approvals } from "./approvals.js";
import { Connection, takeToken } from "./connection.js";
import { Conversation } from "./conversation.js";
import { button, byId, element } from "./elements.js";
import { Panels } from "./panels.js";

const LISTED_MS = 5000;

const known = new Map();
let connection = null;
let current = null;
let settings = {};

const approvals = new Approvals(
  async (answer, question) => {
    await connection.request("chat:tool-approve", answer);
    known.get(answer.conversationId)?.panels.answered(answer.toolId, answer.answer, question.rule);
  },
  (count) => (document.title = count > 0 ? `(${count}) Lazaret` : "Lazaret"),
  (conversationId) => known.get(conversationId)?.view.project,
);

/// A conversation that the page knows, which it may have heard of only now.
function conversation(id, title) {
  if (!known.has(id)) known.set(id, { view: new Conversation(id, title), panels: new Panels() });
  return known.get(id);
}

function state(text, kind) {
  byId("state").textContent = text;
  byId("state").className = kind;
}

/// Shows a conversation, or an empty one that is begun by its first message.
function show(id) {
  current?.panels.hide();
  current = id === null ? { view: new Conversation(null, "New conversation"), panels: new Panels() } : known.get(id);
  byId("log").replaceChildren(current.view.root);
  byId("title").textContent = current.view.title;
  current.panels.show();
  refreshButtons();
  list();
  scrollToEnd(true);
}

function scrollToEnd(always) {
  const log = byId("log");
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 160;
  if (near || always) log.scrollTop = log.scrollHeight;
}

function refreshButtons() {
  const running = current.view.running;
  byId("send").disabled = running;
  byId("stop-call").disabled = byId("stop-run").disabled = !running;
}

/// Asks what conversations there are: applications and other pages have theirs.
async function list() {
  const { conversations } = await connection.get("/conversations").catch(() => ({ conversations: null }));
  if (conversations === null) return;
  const items = conversations.map(({ conversationId, title, running, waiting }) => {
    const status = waiting > 0 ? `${waiting} waiting` : running ? "running" : "";
    const open = button(title || conversationId, () => follow(conversationId, title), {
      "aria-current": conversationId === current?.view.id ? "true" : undefined,
    });
    if (status) open.append(" ", element("span", { class: "status" }, status));
    return element("li", {}, open);
  });
  const focused = [...byId("conversations").querySelectorAll("button")].indexOf(document.activeElement);
  byId("conversations").replaceChildren(...items);
  if (focused >= 0) byId("conversations").querySelectorAll("button")[focused]?.focus();
}

/// Hears a conversation from where the page knows it.
async function follow(id, title) {
  const { view } = conversation(id, title || id);
  const { asked } = await connection.get(`/conversations/${id}`).catch(() => ({ asked: [] }));
  for (const { messageId, content } of asked) view.asked.set(messageId, content);
  show(id);
  byId("title").focus();
  await connection.request("chat:resume", { conversationId: id, after: view.sequence }).catch(failed);
}

function failed(error) {
  current.view.note("failure", error.message, "alert");
  scrollToEnd(true);
}

function heard(message) {
  const { type, payload } = message;
  const there = known.get(payload.conversationId);
  if (type === "chat:resumed") {
    if (payload.missed) there?.view.gap();
    return;
  }
  if (!type.startsWith("chat:") || message.sequence === undefined) return;
  const { view, panels } = there ?? conversation(payload.conversationId, payload.conversationId);
  // What is played again was heard already.
  if (message.sequence <= view.sequence) return;
  view.sequence = message.sequence;
  view.take(message);
  panels.take(message);
  if (type === "chat:tool-confirm") approvals.ask(payload, message.timestamp);
  if (type === "chat:tool-result") approvals.over(payload.conversationId, payload.toolId);
  if (type === "chat:stream-end") {
    approvals.over(payload.conversationId);
    list();
  }
  if (view === current.view) {
    refreshButtons();
    scrollToEnd(false);
  }
}

/// A name for a conversation that no other one has.
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

async function send(event) {
  event.preventDefault();
  const field = byId("text");
  const content = field.value;
  if (!content.trim() || current.view.running) return;
  const payload = { content, conversationId: current.view.id ?? newId() };
  for (const name of ["project", "model"]) {
    const value = byId(name).value.trim();
    if (value) payload[name] = value;
  }
  const id = payload.conversationId;
  const first = current.view.id === null;
  if (first) {
    conversation(id, content.trim().slice(0, 60));
    show(id);
  }
  const { view } = known.get(id);
  // Shown before the answer comes, as events of the run may come before it.
  view.running = true;
  view.said(null, content);
  field.value = "";
  refreshButtons();
  scrollToEnd(true);
  try {
    await connection.request("chat:send", payload);
  } catch (error) {
    view.running = false;
    refreshButtons();
    field.value = content;
    failed(error);
  }
  list();
}

function cancel(toolsOnly) {
  if (!current.view.running || !current.view.id) return;
  connection.request("chat:cancel", { conversationId: current.view.id, toolsOnly }).catch(failed);
}

async function opened() {
  state("Connected", "open");
  byId("token-form").hidden = true;
  byId("console").hidden = false;
  if (current === null) show(null);
  settings = await connection.get("/settings").catch(() => settings);
  byId("trust").value = settings.trust ?? "guided";
  byId("trust").disabled = false;
  byId("project").placeholder = settings.project ?? "an absolute path";
  connection
    .get("/models")
    .then(({ models }) => byId("models").replaceChildren(...models.map(({ id }) => element("option", { value: id }))))
    .catch(() => {});
  // After a break, what was missed is asked for.
  for (const [id, { view }] of known) {
    connection.request("chat:resume", { conversationId: id, after: view.sequence }).catch(() => (view.running = false));
  }
  refreshButtons();
  list();
}

function changed(how) {
  if (how === "open") return opened();
  byId("trust").disabled = true;
  if (how === "refused") return askForToken();
  state("The connection broke; trying again", "lost");
}

function askForToken() {
  state("Not connected", "lost");
  byId("console").hidden = true;
  byId("token-form").hidden = false;
  byId("token").focus();
}

function connect(token) {
  state("Connecting", "lost");
  connection = new Connection(token, heard, changed);
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = byId("token").value.trim();
  byId("token").value = "";
  if (token) connect(token);
});
byId("new").addEventListener("click", () => {
  show(null);
  byId("text").focus();
});
byId("composer").addEventListener("submit", send);
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  if (event.key === "Escape") cancel(true);
});
byId("stop-call").addEventListener("click", () => cancel(true));
byId("stop-run").addEventListener("click", () => cancel(false));
byId("trust").addEventListener("change", async () => {
  const trust = byId("trust").value;
  try {
    await connection.put("/settings", { trust });
    if (current.view.id) await connection.request("chat:trust", { conversationId: current.view.id, trust });
  } catch (error) {
    failed(error);
  }
});
setInterval(() => {
  if (connection && !byId("console").hidden && !document.hidden) list();
}, LISTED_MS);

const token = takeToken();
if (token) connect(token);
else askForToken();
