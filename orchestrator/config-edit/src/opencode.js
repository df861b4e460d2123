// Written by `lazaret install opencode`; `lazaret uninstall opencode` removes it.
//
// OpenCode lets a project's settings win over yours. So this examines them before OpenCode acts on them, and ends OpenCode where
// they may undo Lazaret. Tools of OpenCode's own that are switched off stay so, whatever a project allows.

import { spawnSync } from "node:child_process";
import { writeSync } from "node:fs";

const LAZARET = @LAZARET@;
const OWN = new Set(@OWN@);
/// Ends the alternate screen, mouse reports, bracketed paste and colours.
const RESET = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m\r\n";

function check(directory) {
  const done = spawnSync(LAZARET, ["accept", "--check", "--client", "opencode"], {
    cwd: directory,
    encoding: "utf8",
    stdio: ["ignore", "ignore", "pipe"],
  });
  if (done.status === 0) return;
  if (process.stdin.isTTY) {
    spawnSync("/usr/bin/stty", ["sane"], { stdio: "inherit" });
    writeSync(2, RESET);
  }
  writeSync(2, `${done.stderr || done.error}\nlazaret: OpenCode is ended here, before it acts on them\n`);
  process.kill(process.pid, "SIGKILL");
}

check(process.cwd());

export const Lazaret = async ({ directory }) => {
  check(directory);
  return {
    "tool.execute.before": async ({ tool }) => {
      if (OWN.has(tool)) throw new Error(`lazaret: ${tool} of OpenCode is switched off; use the tools of the server lazaret`);
    },
  };
};
