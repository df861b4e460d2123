// A sandbox for `bash-tool`, the shell and file tools of the Vercel AI SDK.

import { CallError, OutputTooLarge, TimedOut, Denied } from "./errors.js";

const OUTPUT_MAX = 10 << 20;

/** A session as the `sandbox` of `createBashTool`. Who opened the session closes it. */
export function lazaretSandbox(session, { timeout } = {}) {
  return {
    async executeCommand(command) {
      try {
        const { stdout, stderr, exitCode } = await session.run(command, { timeout, outputLimit: OUTPUT_MAX });
        return { stdout: stdout.toString(), stderr: stderr.toString(), exitCode };
      } catch (error) {
        if (!(error instanceof CallError || error instanceof OutputTooLarge)) throw error;
        // What ends a command otherwise than by itself is for the model to see, with the codes that a shell would give.
        const exitCode = error instanceof TimedOut ? 124 : error instanceof Denied ? 126 : 137;
        return { stdout: error.stdout.toString(), stderr: `${error.stderr}${error.message}\n`, exitCode };
      }
    },
    async readFile(path) {
      return (await session.readFile(path)).toString();
    },
    async writeFiles(files) {
      for (const { path, content } of files) await session.writeFile(path, content);
    },
  };
}
