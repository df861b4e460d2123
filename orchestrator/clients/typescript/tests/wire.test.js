// The names that this package uses on the wire are those of `lazaret schema`.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { test } from "node:test";
import { CallError, ToolError, callError } from "../src/errors.js";
import { COMMAND } from "./support.js";

const [program, ...before] = COMMAND;
const printed = execFileSync(program, [...before, "schema"], { encoding: "utf8", maxBuffer: 16 << 20 });
const schema = JSON.parse(printed).$defs;
const source = (name) => fs.readFileSync(new URL(`../src/${name}`, import.meta.url), "utf8");
const found = (name, pattern) => new Set([...source(name).matchAll(pattern)].map((match) => match[1] ?? match[0]));

/** The constants that a property of one of the alternatives may have. */
function names(one, key) {
  const meant = one.$ref ? [schema[one.$ref.split("/").pop()]] : [];
  const below = [meant, one.oneOf, one.anyOf, one.allOf].flatMap((ways) => ways ?? []).flatMap((way) => names(way, key));
  const own = one.properties?.[key]?.const;
  return own === undefined ? below : [own, ...below];
}

test("each event of a session is taken", () => {
  const written = new Set(names(schema.SessionEvent, "event"));
  assert.ok(written.has("output"));
  assert.deepEqual([...found("session.js", /case "(\w+)":/g)].sort(), [...written].sort());
});

test("each operation is sent by its name", () => {
  const understood = names(schema.SessionCommand, "op");
  const sent = new Set([...found("session.js", /op: "(\w+)"/g), ...found("command.js", /op: "(\w+)"/g)]);
  assert.deepEqual([...sent].sort(), understood.sort());
});

test("answers are those of the wire", () => {
  const words = schema.Answer.anyOf.find((one) => one.enum).enum;
  const [, listed] = source("session.js").match(/const ANSWERS = (\[.*\]);/);
  assert.deepEqual(JSON.parse(listed).sort(), [...words].sort());
  const [, typed] = source("index.d.ts").match(/export type Answer = (.*);/);
  for (const word of words) assert.ok(typed.includes(`"${word}"`), word);
});

test("codes of errors have classes that exist, and no other codes do", () => {
  const codes = new Set(schema.ErrorCode.enum);
  for (const code of found("errors.js", /\["(\w+)", \w+\]/g)) assert.ok(codes.has(code), code);
  const line = (code) => ({ error: { code, layer: "result", message: "m" }, metadata: {} });
  assert.notEqual(callError(line("timeout")).constructor, CallError);
  assert.equal(callError(line("no_such_code")).constructor, CallError);
  assert.throws(() => new ToolError("m", "no_such_code"), RangeError);
});

test("events of a chat exist", () => {
  const written = new Set(names(schema.ChatEvent, "type"));
  assert.ok(written.has("chat:stream-end"));
  for (const name of found("chat.js", /chat:[a-z-]+/g)) assert.ok(written.has(name), name);
});
