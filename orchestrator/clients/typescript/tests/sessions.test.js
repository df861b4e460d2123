// Sessions: approvals, tools of the client's own, violations, and every way to the end.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import test from "node:test";
import * as lazaret from "../src/index.js";
import { COMMAND, below, folders, isAlive, open, until } from "./support.js";

test("an answer counts for what was asked", async (t) => {
  const asked = [];
  const answers = ["no", "once", "session"];
  const onApproval = async (approval) => {
    asked.push(approval);
    return answers.shift();
  };
  const { session, in: at } = await open(t, { trust: "guided", onApproval });
  assert.equal(session.info.trust, "guided");
  await assert.rejects(session.run(["touch", "made"]), lazaret.DeniedByUser);
  assert.equal(fs.existsSync(at("made")), false);
  for (const name of ["made", "more", "again"]) await session.run(["touch", name], { check: true });
  assert.equal(asked.length, 3);
  assert.deepEqual([asked[0].tool, asked[0].input.command], ["bash", ["touch", "made"]]);
  assert.match(asked[0].digest, /^[0-9a-f]{64}$/);
  const [grant] = await session.grants();
  assert.equal(grant.tool, "bash");
  assert.deepEqual(await session.revoke(grant.grant), []);
});

test("without a callback or with one that fails the answer is no", async (t) => {
  const fail = () => {
    throw new Error("broken");
  };
  for (const onApproval of [undefined, fail, () => true, () => "yes", () => ({ minutes: 0 }), () => ["once"]]) {
    const warnings = [];
    const { session, in: at } = await open(t, { trust: "guided", onApproval, onWarning: (text) => warnings.push(text) });
    await assert.rejects(session.run(["touch", "made"]), lazaret.DeniedByUser);
    assert.equal(fs.existsSync(at("made")), false);
    assert.equal(warnings.length, onApproval ? 1 : 0);
  }
});

test("minutes and a no that stops are answers", async (t) => {
  const answers = [{ minutes: 1 }, "no_and_stop"];
  const { session, in: at } = await open(t, { trust: "guided", onApproval: () => answers.shift() });
  // It wants nothing, so it is allowed this once.
  await session.run(["touch", "made"], { check: true });
  assert.equal(fs.existsSync(at("made")), true);
  await assert.rejects(session.run(["touch", "more"]), lazaret.DeniedByUser);
  assert.deepEqual(await session.grants(), []);
});

const inputSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const deploy = (handler) => ({ name: "deploy", description: "Deploys.", inputSchema, handler });

test("a tool of the client's own is called", async (t) => {
  const { session } = await open(t);
  await session.register(deploy(async ({ name }) => ({ text: `deployed ${name}`, structured: { name } })));
  assert.ok((await session.tools()).some((tool) => tool.name === "deploy"));
  assert.equal((await session.call("deploy", { name: "x" })).text, "deployed x");
  await assert.rejects(session.call("deploy", {}), lazaret.InvalidInput);
  await session.unregister("deploy");
  await assert.rejects(session.call("deploy", { name: "x" }), lazaret.UnknownTool);
  await session.register(deploy(async () => String((await session.run("echo inner")).stdout)));
  assert.equal((await session.call("deploy", { name: "x" })).text, "inner\n");
  await assert.rejects(session.register({ ...deploy(() => "mine"), name: "bash" }), lazaret.InvalidInput);
  assert.equal((await session.call("bash", { command: "echo real" })).text, "real\n");
});

test("errors of a tool have their kind", async (t) => {
  const warnings = [];
  const { session } = await open(t, { onWarning: (text) => warnings.push(text) });
  await session.register(deploy(() => {
    throw new lazaret.ToolError("no such host", "not_found");
  }));
  await assert.rejects(session.call("deploy", { name: "x" }), (error) => {
    assert.ok(error instanceof lazaret.NotFound);
    assert.match(error.message, /no such host/);
    return true;
  });
  await session.unregister("deploy");
  await session.register(deploy(() => {
    throw new TypeError("password=hunter2");
  }));
  await assert.rejects(session.call("deploy", { name: "x" }), (error) => {
    assert.ok(error instanceof lazaret.IoError);
    assert.doesNotMatch(error.message, /hunter2/);
    return true;
  });
  assert.equal(warnings.length, 1);
  assert.throws(() => new lazaret.ToolError("no", "violation"), RangeError);
});

test("a tool is told when its call has ended", async (t) => {
  const { session } = await open(t);
  let stopped;
  const begun = new Promise((resolve) => {
    void session.register(deploy((_, { signal }) => {
      resolve();
      return new Promise((done) => {
        stopped = once(signal, "abort").then(() => done("late"));
      });
    })).then(() => session.start("deploy", { name: "x" })).then((call) => {
      t.call = call;
    });
  });
  await begun;
  await until(() => t.call);
  t.call.cancel();
  await assert.rejects(t.call.result(), lazaret.Cancelled);
  await stopped;
});

test("closing leaves nothing", async (t) => {
  const { session } = await open(t);
  const call = await session.start("bash", { command: "sleep 500", timeout: 500 });
  const pids = [session.pid, ...below(session.pid)];
  assert.ok(pids.length > 2);
  await session.close();
  await until(() => !pids.some(isAlive));
  await assert.rejects(call.result(), lazaret.LazaretError);
  await assert.rejects(session.run(["true"]), lazaret.SessionEnded);
  await session.close();
});

test("a session that is killed ends its calls", async (t) => {
  const { session, in: at } = await open(t);
  const run = session.run("touch begun; sleep 500", { timeout: 500 });
  await until(() => fs.existsSync(at("begun")));
  const pids = below(session.pid);
  process.kill(session.pid, "SIGKILL");
  await assert.rejects(run, (error) => {
    assert.ok(error instanceof lazaret.SessionEnded);
    assert.equal(error.signal, "SIGKILL");
    return true;
  });
  await until(() => !pids.some(isAlive));
  await assert.rejects(session.run(["true"]), lazaret.SessionEnded);
});

test("a program that dies takes its session along", async (t) => {
  const { project, central } = folders(t);
  const script = `
    import { Session } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const session = await Session.open(${JSON.stringify({ project, central, program: COMMAND })});
    await session.start("bash", { command: "sleep 500", timeout: 500 });
    console.log(session.pid);
    process.stdin.on("end", () => process.kill(process.pid, "SIGKILL")).resume();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await once(child.stdout, "data");
  const pids = [Number(String(line)), ...below(Number(String(line)))];
  assert.ok(isAlive(pids[0]));
  child.stdin.end();
  await once(child, "exit");
  await until(() => !pids.some(isAlive));
});

test("too many violations end a session", async (t) => {
  const { session, outside, in: at } = await open(t, { maxViolations: 1 });
  await assert.rejects(session.call("file_read", { path: `${outside}/secret` }), lazaret.Violation);
  await assert.rejects(session.run(["touch", "made"]), lazaret.TooManyViolations);
  assert.equal(fs.existsSync(at("made")), false);
});

test("what opens no session says why", async (t) => {
  const { central } = folders(t);
  await assert.rejects(lazaret.Session.open({ project: "/", central, program: COMMAND }), lazaret.SessionRefused);
  await assert.rejects(lazaret.Session.open({ program: "/no/such/program" }), lazaret.NotInstalled);
  const { LAZARET, PATH } = process.env;
  t.after(() => Object.assign(process.env, { PATH, ...(LAZARET === undefined ? {} : { LAZARET }) }));
  // What every cell has names no program.
  Object.assign(process.env, { LAZARET: "1", PATH: "/no/such/folder" });
  await assert.rejects(lazaret.Session.open({}), /^NotInstalled: lazaret cannot be started/);
  if (LAZARET === undefined) delete process.env.LAZARET;
});

const READY = JSON.stringify({
  event: "ready",
  protocol: 1,
  session: {
    id: "1", project: "/p", cwd: ".", central: "/c", profile: "d", policy: "0", tier: "flat", layers: [], trust: null,
    channel: null, maxViolations: null,
  },
});

/** A session with a program that is not `lazaret`: it says that it is ready, and after the first line what `after` does. */
async function fake(t, after, ready = READY, options = {}) {
  const script = `console.log(${JSON.stringify(ready)}); process.stdin.once("data", () => { ${after} });`;
  const session = await lazaret.Session.open({ program: [process.execPath, "-e", script], ...options });
  t.after(() => session.close());
  return session;
}

test("lines that are none end the session", async (t) => {
  const line = (value) => `console.log(${JSON.stringify(JSON.stringify(value))})`;
  for (const after of [
    "console.log('no JSON')",
    "console.log('[1]')",
    line({}),
    "process.stdout.write(Buffer.of(255, 10))",
    line({ event: "output", id: 1, stream: "stdout", chunkBase64: "?" }),
    line({ event: "approval", id: 1 }),
    line({ event: "result", id: null, error: { message: "x" } }),
    "process.stdout.write('x'.repeat(65 << 20))",
    "process.exit(7)",
  ]) {
    const session = await fake(t, after);
    await assert.rejects(session.call("bash", { command: "true" }), lazaret.SessionEnded, after);
    await session.close();
  }
});

test("another version of the lines is refused, and events that are new are passed over", async (t) => {
  await assert.rejects(fake(t, "", READY.replace('"protocol":1', '"protocol":2')), (error) => {
    assert.ok(error.cause instanceof lazaret.ProtocolError);
    return true;
  });
  const answer = { event: "result", id: 1, status: "success", result: "fine", metadata: {}, new: 2 };
  const session = await fake(t, `console.log('{"event":"new","id":1}'); console.log(${JSON.stringify(JSON.stringify(answer))})`);
  assert.equal((await session.call("bash", { command: "true" })).text, "fine");
  await assert.rejects(session.call("bash", { command: "x".repeat(32 << 20) }), RangeError);
});

test("hooks are heard, and a callback that fails ends nothing", async (t) => {
  const lines = [
    { event: "hook", id: 1, hook: { hook: "guard", event: "before_tool", outcome: "allowed" } },
    { event: "result", id: 1, status: "success", result: "fine", metadata: {} },
  ];
  const heard = [];
  const onHook = (ran) => {
    heard.push(ran.hook);
    throw new Error("not today");
  };
  const after = lines.map((line) => `console.log(${JSON.stringify(JSON.stringify(line))});`).join("");
  const session = await fake(t, after, READY, { onHook });
  assert.equal((await session.call("bash", { command: "true" })).text, "fine");
  assert.deepEqual(heard, ["guard"]);
});
