// Chats: a script is the model, and its tools work in cells.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import * as lazaret from "../src/index.js";
import { COMMAND, folders, isAlive, until } from "./support.js";

const call = (command) => ({ name: "bash", input: { command } });

/** A chat whose model says these turns. */
async function chat(t, turns, options = {}) {
  const { project, central, outside } = folders(t);
  const script = path.join(outside, "script.json");
  fs.writeFileSync(script, JSON.stringify({ turns }));
  const opened = await lazaret.Chat.open({
    project, central, program: COMMAND, provider: "mock", arguments: ["--script", script], ...options,
  });
  t.after(() => opened.close());
  return { chat: opened, at: (name) => path.join(project, name) };
}

test("a model's calls run in cells, and its words come as events", async (t) => {
  const turns = [{ text: "", toolCalls: [call("touch made")] }, { text: "Done." }, { text: "Again." }];
  const { chat: opened, at } = await chat(t, turns, { trust: "autonomous" });
  const seen = [];
  const reply = await opened.send("begin", { onEvent: ({ type }) => seen.push(type) });
  assert.deepEqual([reply.text, reply.reason, reply.error], ["Done.", "done", null]);
  assert.equal(fs.existsSync(at("made")), true);
  assert.deepEqual([seen[0], seen.at(-1)], ["chat:stream-start", "chat:stream-end"]);
  assert.ok(seen.includes("chat:tool-result"));
  assert.equal((await opened.send("go on")).text, "Again.", "the conversation goes on");
});

test("an answer counts for what was asked, and without one the call is denied", async (t) => {
  const turns = [{ text: "", toolCalls: [call("touch one")] }, { text: "", toolCalls: [call("touch two")] }, { text: "Done." }];
  const asked = [];
  const onApproval = (question) => {
    asked.push(question.input.command);
    return asked.length === 1 ? "no" : "once";
  };
  const { chat: opened, at } = await chat(t, turns, { trust: "supervised", onApproval });
  await opened.send("begin");
  assert.deepEqual(asked, ["touch one", "touch two"]);
  assert.deepEqual([fs.existsSync(at("one")), fs.existsSync(at("two"))], [false, true]);
  const { chat: silent, at: there } = await chat(t, turns, { trust: "supervised" });
  await silent.send("begin");
  assert.equal(fs.existsSync(there("one")), false);
});

test("what goes wrong has a name, and nothing is left", async (t) => {
  const { chat: opened } = await chat(t, [{ text: "Done." }], { trust: "autonomous" });
  await assert.rejects(opened.send("x", { trust: "nonsense" }), { name: "ChatError", code: "invalid_request" });
  const { pid } = opened;
  await opened.close();
  await until(() => !isAlive(pid));
  await assert.rejects(chat(t, [], { provider: "nobody" }), lazaret.ChatError);
  await assert.rejects(lazaret.Chat.open({ program: "no-such-program" }), lazaret.NotInstalled);
});
