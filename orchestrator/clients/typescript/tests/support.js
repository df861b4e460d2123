// What the tests share: where `lazaret` is, and folders to work in.
//
// LAZARET_TEST_COMMAND is the program with what stands before it, one word a line; LAZARET_TEST_TIER the tier that a session must get.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Session } from "../src/index.js";

export const COMMAND = (process.env.LAZARET_TEST_COMMAND ?? process.env.LAZARET ?? "lazaret").split("\n");
export const TIER = process.env.LAZARET_TEST_TIER;
/** How long anything is waited for that must come, in ms. */
export const LIMIT = 60_000;

/** A project, a central root, and a folder outside both, for one test. */
export function folders(t) {
  const under = process.env.LAZARET_TEST_FOLDER ?? os.tmpdir();
  const base = fs.realpathSync(fs.mkdtempSync(path.join(under, "lazaret-client-")));
  t.after(() => fs.rmSync(base, { recursive: true, force: true }));
  const made = {};
  for (const name of ["project", "central", "outside"]) {
    made[name] = path.join(base, name);
    fs.mkdirSync(made[name]);
  }
  return made;
}

/** An open session in folders of its own. */
export async function open(t, options = {}) {
  const { project, central, outside } = options.folders ?? folders(t);
  const { folders: _, ...more } = options;
  const session = await Session.open({ project, central, program: COMMAND, ...more });
  t.after(() => session.close());
  return { session, project, central, outside, in: (name) => path.join(project, name) };
}

/** Waits until something holds. */
export async function until(holds) {
  for (const end = Date.now() + LIMIT; !holds(); ) {
    if (Date.now() > end) throw new Error(`it does not come to be: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Whether a process is there and no zombie. */
export function isAlive(pid) {
  try {
    const state = fs.readFileSync(`/proc/${pid}/stat`, "utf8").replace(/.*\) /s, "")[0];
    return state !== "Z" && state !== "X";
  } catch {
    return false;
  }
}

/** The processes that descend from one. */
export function below(pid) {
  const parents = new Map();
  for (const entry of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      parents.set(Number(entry), Number(fs.readFileSync(`/proc/${entry}/stat`, "utf8").replace(/.*\) /s, "").split(" ")[1]));
    } catch {
      // It has ended meanwhile.
    }
  }
  const found = new Set([pid]);
  for (let before = 0; before < found.size; ) {
    before = found.size;
    for (const [child, parent] of parents) if (found.has(parent)) found.add(child);
  }
  found.delete(pid);
  return [...found];
}
