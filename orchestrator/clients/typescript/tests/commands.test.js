// Commands and files: arguments, streams, input, directory, environment, limits.

import assert from "node:assert/strict";
import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import * as lazaret from "../src/index.js";
import { TIER, open, until } from "./support.js";

test("the session says what is in force", async (t) => {
  const { session, project, central } = await open(t);
  assert.equal(session.info.project, project);
  assert.equal(session.info.central, central);
  assert.match(session.info.version, /^\d+\.\d+\.\d+/);
  assert.ok(session.info.layers.includes("seccomp"));
  if (TIER) assert.equal(session.info.tier, TIER);
  assert.deepEqual((await session.run(["true"])).metadata.layers, session.info.layers);
});

test("streams are apart and the exit code is the command's", async (t) => {
  const { session } = await open(t);
  const done = await session.run("echo out; echo err >&2; exit 7");
  assert.deepEqual([done.exitCode, String(done.stdout), String(done.stderr)], [7, "out\n", "err\n"]);
  assert.equal((await session.run("kill -TERM $$")).exitCode, 143);
  await assert.rejects(session.run("echo why >&2; exit 7", { check: true }), (error) => {
    assert.ok(error instanceof lazaret.CommandFailed);
    assert.deepEqual([error.exitCode, String(error.stderr)], [7, "why\n"]);
    return true;
  });
});

test("arguments reach the program as they are", async (t) => {
  const { session } = await open(t);
  const words = ["", "a b", "$HOME `id` \"'\\", "*", "é✨", "line\nend", "\x01\x7f", "-n", "--", "\ufeffmark"];
  const done = await session.run(["printf", "%s\\0", ...words]);
  assert.deepEqual(String(done.stdout).split("\0").slice(0, -1), words);
  const bytes = await session.run(["sh", "-c", 'printf "%s" "$1"; cat', "sh", Buffer.of(255)], { stdin: "\0rest" });
  assert.deepEqual(bytes.stdout, Buffer.concat([Buffer.of(255, 0), Buffer.from("rest")]));
});

test("arguments have a mebibyte, and a limit", async (t) => {
  const { session } = await open(t);
  const words = Array.from({ length: 16 }, (_, number) => String.fromCharCode(65 + number).repeat(65_536));
  const done = await session.run(["printf", "%s", ...words]);
  assert.equal(String(done.stdout), words.join(""));
  const fed = await session.run(["sh", "-c", "cat; echo $#", ...words], { stdin: "x".repeat(300_000) });
  assert.equal(String(fed.stdout), `${"x".repeat(300_000)}15\n`);
  for (const command of [[], ["a\0b"], ["\ud800"], Array(3).fill("x".repeat(1_000_000))]) {
    await assert.rejects(session.run(command), RangeError);
  }
});

test("what cannot be started ends as in a shell", async (t) => {
  const { session, in: at } = await open(t);
  fs.writeFileSync(at("plain"), "text");
  for (const env of [undefined, { A: "b" }]) {
    const absent = await session.run(["no-such-program"], { env });
    assert.equal(absent.exitCode, 127);
    assert.match(String(absent.stderr), /no-such-program/);
    assert.equal((await session.run(["./plain"], { env })).exitCode, 126);
  }
  assert.equal((await session.run(["true"], { cwd: "absent" })).exitCode, 127);
});

test("directory and environment are the call's own", async (t) => {
  const { session, project, central, in: at } = await open(t);
  fs.mkdirSync(at("sub dir"));
  for (const [cwd, expected] of [
    [undefined, project],
    ["sub dir", at("sub dir")],
    [at("sub dir"), at("sub dir")],
    [central, central],
    ["/usr/bin", "/usr/bin"],
  ]) {
    assert.equal(String((await session.run(["pwd"], { cwd })).stdout), `${expected}\n`);
  }
  // Where the cell's /tmp lies elsewhere, it is entered there.
  await session.run(["bash", "-c", "mkdir /tmp/of-cell && echo here > /tmp/of-cell/file"]);
  assert.equal(String((await session.run(["cat", "file"], { cwd: "/tmp/of-cell" })).stdout), "here\n");
  const env = { WORD: "two words\n$HOME", EMPTY: "" };
  const script = 'printf "%s|%s" "$WORD" "${EMPTY-unset}"';
  assert.equal(String((await session.run(script, { env })).stdout), "two words\n$HOME|");
  assert.equal(String((await session.run(script)).stdout), "|unset");
  fs.writeFileSync(at("a=b"), "#!/bin/sh\necho $WORD", { mode: 0o755 });
  assert.equal(String((await session.run(["./a=b"], { env: { WORD: "w" } })).stdout), "w\n");
  for (const wrong of [{ "": "x" }, { "A=B": "x" }, { A: "\0" }]) {
    await assert.rejects(session.run(["true"], { env: wrong }), RangeError);
  }
});

test("input is bytes, at its limits too", async (t) => {
  const { session } = await open(t);
  const data = Buffer.from(Array.from({ length: 256 }, (_, number) => number));
  for (const stdin of ["", "text é", data]) {
    assert.deepEqual((await session.run(["cat"], { stdin })).stdout, Buffer.from(stdin));
  }
  assert.equal(String((await session.run("read x || echo ended")).stdout), "ended\n");
  for (const size of [196_608, 196_609, 9 << 20]) {
    const stdin = crypto.randomBytes(size);
    const done = await session.run(["sha256sum"], { stdin });
    assert.equal(String(done.stdout).split(" ")[0], crypto.createHash("sha256").update(stdin).digest("hex"));
  }
});

test("input that nobody reads holds up nobody", async (t) => {
  const { session } = await open(t);
  const unread = [196_608, 9 << 20].map((size) => session.run(["sleep", "1"], { stdin: Buffer.alloc(size) }));
  for (let turn = 0; turn < 5; turn += 1) {
    assert.equal(String((await session.run(["cat"], { stdin: "y" })).stdout), "y");
  }
  assert.deepEqual((await Promise.all(unread)).map((done) => done.exitCode), [0, 0]);
});

test("output that is not text stays as it is", async (t) => {
  const { session, in: at } = await open(t);
  const data = Buffer.concat(Array(5000).fill(Buffer.from("ff001b5b33316de280ae0d0ac3", "hex")));
  fs.writeFileSync(at("bytes"), data);
  const done = await session.run("cat bytes; cat bytes >&2");
  assert.deepEqual([done.stdout.equals(data), done.stderr.equals(data)], [true, true]);
});

test("output has a limit", async (t) => {
  const { session } = await open(t);
  const command = ["head", "-c", "1000", "/dev/zero"];
  assert.equal((await session.run(command, { outputLimit: 1000 })).stdout.length, 1000);
  await assert.rejects(session.run(command, { outputLimit: 999 }), (error) => {
    assert.ok(error instanceof lazaret.OutputTooLarge);
    assert.deepEqual([error.limit, error.stdout.length], [999, 999]);
    return true;
  });
  await assert.rejects(session.run(["yes"], { outputLimit: 100_000, timeout: 500 }), lazaret.OutputTooLarge);
});

test("output comes while the command runs", async (t) => {
  const { session, in: at } = await open(t);
  const seen = [];
  const onOutput = async (stream, chunk) => {
    seen.push([stream, String(chunk)]);
    fs.writeFileSync(at("go"), "");
  };
  await session.run("echo ready; while [ ! -e go ]; do sleep 0.05; done; echo done >&2", { onOutput, timeout: 60, check: true });
  assert.deepEqual(seen, [["stdout", "ready\n"], ["stderr", "done\n"]]);
});

test("a callback for output that fails ends the command", async (t) => {
  const warnings = [];
  const { session } = await open(t, { onWarning: (message) => warnings.push(message) });
  const onOutput = () => {
    throw new Error("no");
  };
  await assert.rejects(session.run("echo x; sleep 500", { onOutput, timeout: 500 }), lazaret.Cancelled);
  assert.equal(warnings.length, 1);
});

test("time has a limit", async (t) => {
  const { session } = await open(t);
  for (const timeout of [1, 0.3]) {
    await assert.rejects(session.run("echo begun; sleep 500", { timeout }), (error) => {
      assert.ok(error instanceof lazaret.TimedOut);
      assert.equal(String(error.stdout), "begun\n");
      return true;
    });
  }
  await assert.rejects(session.run("echo x; sleep 500", { timeout: 100, idleTimeout: 1 }), lazaret.IdleTimedOut);
  assert.equal((await session.run(["true"], { timeout: 86_400_000 })).exitCode, 0);
  for (const timeout of [0, -1, NaN, Infinity]) {
    await assert.rejects(session.run(["true"], { timeout }), RangeError);
  }
});

test("an abort ends the command", async (t) => {
  const { session, in: at } = await open(t);
  const controller = new AbortController();
  const script = "touch begun; while [ ! -e go ]; do sleep 0.05; done; touch after";
  const run = session.run(script, { signal: controller.signal, timeout: 500 });
  await until(() => fs.existsSync(at("begun")));
  controller.abort(new Error("enough"));
  await assert.rejects(run, /enough/);
  fs.writeFileSync(at("go"), "");
  await session.run("sleep 0.3");
  assert.equal(fs.existsSync(at("after")), false);
  await assert.rejects(session.run(["touch", "never"], { signal: controller.signal }), /enough/);
  assert.equal(fs.existsSync(at("never")), false);
});

test("a call is fed bit by bit", async (t) => {
  const { session } = await open(t);
  const seen = [];
  const call = await session.start("bash", { command: ["cat"], stdin: true }, { onOutput: (_, chunk) => void seen.push(chunk) });
  await call.write("one\n");
  await until(() => String(Buffer.concat(seen)) === "one\n");
  await call.write("two\n");
  await call.endInput();
  assert.equal((await call.result()).text, "one\ntwo\n");
});

test("calls run at once", async (t) => {
  const { session } = await open(t);
  const script = "touch $1; while [ ! -e $2 ]; do sleep 0.05; done; echo $1";
  const run = (own, other) => session.run(["bash", "-c", script, "bash", own, other], { timeout: 60, check: true });
  const done = await Promise.all([run("a", "b"), run("b", "a")]);
  assert.deepEqual(done.map(({ stdout }) => String(stdout)), ["a\n", "b\n"]);
});

test("what is outside is not there", async (t) => {
  const events = [];
  const { session, outside } = await open(t, { onSecurityEvent: (event) => events.push(event) });
  const secret = path.join(outside, "secret");
  fs.writeFileSync(secret, "SECRET");
  const done = await session.run(["cat", secret]);
  assert.notEqual(done.exitCode, 0);
  assert.equal(done.stdout.length, 0);
  await session.run(["sh", "-c", `echo x > ${outside}/made`]);
  await assert.rejects(session.readFile(secret), lazaret.FileError);
  await session.writeFile(path.join(outside, "made"), "x").catch((error) => assert.equal(error.code, "EACCES"));
  assert.deepEqual(fs.readdirSync(outside), ["secret"]);
  await assert.rejects(session.call("file_read", { path: secret }), (error) => {
    assert.ok(error instanceof lazaret.Violation && error instanceof lazaret.Denied);
    assert.equal(error.metadata.denied[0].by.name, "roots");
    return true;
  });
  assert.deepEqual(events.map((event) => event.tool), ["file_read"]);
});

test("the secrets of this process are not in a cell", async (t) => {
  const environment = { ...process.env, CLIENT_TEST_TOKEN: "swordfish-swordfish" };
  const { session } = await open(t, { environment });
  assert.doesNotMatch(String((await session.run(["env"])).stdout), /CLIENT_TEST_TOKEN/);
  assert.equal(String((await session.run(["echo", "swordfish-swordfish"])).stdout), "[redacted:CLIENT_TEST_TOKEN]\n");
});

test("what is written is read", async (t) => {
  const { session, project, central, in: at } = await open(t);
  const bytes = crypto.randomBytes(1 << 20);
  for (const [name, data] of [
    ["empty", ""],
    ["bytes", bytes],
    ["new/folder/file", "x"],
    ["-", "dash"],
    ["-n name with\nline", "odd"],
    [path.join(project, "absolute"), "y"],
    [path.join(central, "central"), "z"],
  ]) {
    await session.writeFile(name, data);
    assert.ok((await session.readFile(name)).equals(Buffer.from(data)), name);
    assert.ok(fs.readFileSync(path.resolve(project, name)).equals(Buffer.from(data)), name);
  }
  const outputs = path.join(central, "outputs");
  assert.deepEqual(fs.existsSync(outputs) ? fs.readdirSync(outputs) : [], []);
  fs.mkdirSync(at("folder"));
  fs.writeFileSync(at("closed"), "x", { mode: 0 });
  for (const [code, name] of [["ENOENT", "absent"], ["EISDIR", "folder"], ["EACCES", "closed"], ["EINVAL", "/dev/zero"]]) {
    await assert.rejects(session.readFile(name), { code, path: name });
  }
  for (const [code, name] of [["EISDIR", "folder"], ["EACCES", "closed"], ["EACCES", "/usr/made"]]) {
    await assert.rejects(session.writeFile(name, "x"), { code, path: name });
  }
  assert.equal((await session.readFile("bytes", { limit: 1 << 20 })).length, 1 << 20);
  await assert.rejects(session.readFile("bytes", { limit: (1 << 20) - 1 }), { code: "EFBIG" });
  await assert.rejects(session.writeFile("large", Buffer.alloc((100 << 20) + 1)), RangeError);
  await assert.rejects(session.readFile(""), RangeError);
});
