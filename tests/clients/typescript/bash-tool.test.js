// The tools of `bash-tool` for the Vercel AI SDK, by themselves and under a model that is a script.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { createBashTool } from "bash-tool";
import { Session } from "lazaret-sandbox";
import { lazaretSandbox } from "lazaret-sandbox/bash-tool";

async function open(t) {
  const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "lazaret-client-")));
  t.after(() => fs.rmSync(base, { recursive: true, force: true }));
  for (const name of ["project", "central"]) fs.mkdirSync(path.join(base, name));
  const session = await Session.open({ project: path.join(base, "project"), central: path.join(base, "central") });
  t.after(() => session.close());
  const destination = session.info.project;
  const sandbox = lazaretSandbox(session, { timeout: 20 });
  return { session, destination, sandbox, ...(await createBashTool({ sandbox, destination, files: { "given.txt": "given\n" } })) };
}

const options = { toolCallId: "1", messages: [] };

test("the tools work in cells", async (t) => {
  const { tools, destination } = await open(t);
  const done = await tools.bash.execute({ command: "cat given.txt; pwd; echo e >&2; exit 3" }, options);
  assert.deepEqual(done, { stdout: `given\n${destination}\n`, stderr: "e\n", exitCode: 3 });
  await tools.writeFile.execute({ path: "made/file.txt", content: "é" }, options);
  assert.equal(fs.readFileSync(path.join(destination, "made/file.txt"), "utf8"), "é");
  assert.equal((await tools.readFile.execute({ path: "made/file.txt" }, options)).content, "é");
  const closed = await tools.bash.execute({ command: "cat /etc/shadow || echo closed" }, options);
  assert.equal(closed.stdout, "closed\n");
});

test("what ends a command is for the model to see", async (t) => {
  const { session } = await open(t);
  const sandbox = lazaretSandbox(session, { timeout: 1 });
  const late = await sandbox.executeCommand("echo begun; sleep 100");
  assert.deepEqual([late.stdout, late.exitCode], ["begun\n", 124]);
  assert.match(late.stderr, /time limit/);
  const large = await lazaretSandbox(session, { timeout: 60 }).executeCommand("head -c 11000000 /dev/zero");
  assert.equal(large.exitCode, 137);
  await assert.rejects(sandbox.readFile("absent"), { code: "ENOENT" });
});

test("a model's calls run in cells", async (t) => {
  const { tools, destination } = await open(t);
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const steps = [
    {
      content: [{ type: "tool-call", toolCallId: "1", toolName: "bash", input: JSON.stringify({ command: "grep Seccomp: /proc/self/status > seen" }) }],
      finishReason: { unified: "tool-calls", raw: "tool-calls" },
    },
    { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop", raw: "stop" } },
  ];
  const model = new MockLanguageModelV3({ doGenerate: async () => ({ ...steps.shift(), usage, warnings: [] }) });
  const { text } = await generateText({ model, tools, prompt: "go", stopWhen: stepCountIs(3) });
  assert.equal(text, "done");
  assert.match(fs.readFileSync(path.join(destination, "seen"), "utf8"), /Seccomp:\s+2/);
});
