import type { Session } from "./index.js";

/** What `createBashTool` of `bash-tool` takes as its `sandbox`. */
export interface BashToolSandbox {
  executeCommand(command: string): Promise<{ stdout: string; stderr: string; exitCode: number }>;
  readFile(path: string): Promise<string>;
  writeFiles(files: Array<{ path: string; content: string | Buffer }>): Promise<void>;
}

export interface BashToolOptions {
  /** Seconds that a command has; the policy's default without it. */
  timeout?: number;
}

/**
 * A session as the `sandbox` of `createBashTool`. Who opened the session closes it. Give `createBashTool` a `destination` in the
 * project, such as `session.info.project`.
 */
export function lazaretSandbox(session: Session, options?: BashToolOptions): BashToolSandbox;
