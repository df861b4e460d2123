// The declarations, used as a program would use them. It is compiled and not run.

import { createBashTool } from "bash-tool";
import { CommandFailed, FileError, Session, ToolError, type Answer, type Approval, type Completed } from "lazaret-sandbox";
import { lazaretSandbox } from "lazaret-sandbox/bash-tool";

export async function use(): Promise<void> {
  const onApproval = (approval: Approval): Answer => (approval.risk === "low" ? "session" : "no");
  const session = await Session.open({ project: ".", trust: "guided", onApproval, allowNet: ["npm"] });
  const done: Completed = await session.run(["make", Buffer.of(1)], { cwd: "sub", env: { A: "b" }, stdin: "x", timeout: 0.5 });
  const text: string = done.stdout.toString() + done.metadata.denied?.[0]?.why;
  await session.writeFile("a", text);
  const result = await session.call("file_read", { path: "a" });
  // @ts-expect-error: a result has no exit code of its own
  result.exitCode;
  // @ts-expect-error: an answer is a word
  await Session.open({ onApproval: () => true });
  await session.register({
    name: "deploy",
    description: "Deploys.",
    inputSchema: { type: "object" },
    handler: (input, { signal }) => {
      if (signal.aborted) throw new ToolError("late", "cancelled");
      return { text: String(input), structured: { a: 1 } };
    },
  });
  try {
    await session.run("false", { check: true });
  } catch (error) {
    if (error instanceof CommandFailed) console.log(error.exitCode, error.metadata.layers);
    if (error instanceof FileError) console.log(error.code, error.path);
  }
  await createBashTool({ sandbox: lazaretSandbox(session), destination: session.info.project });
  await session.close();
}
