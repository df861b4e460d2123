// How a command with its directory, environment and input becomes a call of the tool `bash`.
//
// What the tool takes as it is goes there as it is. The rest needs a launcher inside the cell, a few lines of bash before the command:
// a directory outside the two roots, which only the cell can enter; more arguments than go into a call; an input of many megabytes.
// The launcher is as confined as the command, so nothing is decided here that would have to hold.

import path from "node:path";

/** Bytes of all arguments of a command: what Linux allows with its usual stack. */
export const ARGUMENTS_MAX = 2 << 20;
// Bytes of arguments that go into a call; the tool takes a million, with nine more for each.
const INLINE_ARGUMENTS = 900_000;
const ARGUMENT_COST = 9;
// Bytes of input that a call is fed: fewer than the executor takes in before the command reads any, so that a command that reads
// nothing holds up nobody. A longer one is put into a file of the cell first.
const STDIN_INLINE = 192 << 10;
const STDIN_PART = 96 << 10;
const TIMEOUT_MAX_MS = 86_400_000;

// $1: how many arguments come on standard input. $2: the working directory, or nothing. $3: the file that is to be standard input, or
// nothing; it is removed, so that it lives as long as the command reads it.
const LAUNCHER = `n=$1 d=$2 f=$3; shift 3
if [ "$n" != 0 ]; then mapfile -d '' -n "$n" -t a || exit 126; set -- "\${a[@]}"; fi
case $d in /tmp|/tmp/*) if [ -d "\${TMPDIR:-/tmp}\${d#/tmp}" ]; then d=$TMPDIR\${d#/tmp}; fi ;; esac
if [ -n "$d" ]; then cd -- "$d" || exit 127; fi
if [ -n "$f" ]; then exec <"$f" || exit 126; rm -f -- "$f"; fi
unset n d f a
exec -- "$@"`;
const FILE_AT = 6;

/** Makes a file that only this session has, fills it from standard input, and prints its name. */
export const STAGE = 'f=$(mktemp) && cat >"$f" && printf %s "$f"';

/**
 * The call for a command: its `input`, what it is fed (`stdin`, or null), and what has to be in a file before (`staged`, or null), whose
 * name then completes the input (`withFile`).
 */
export function plan(command, { stdin, cwd, env, timeout, idleTimeout, roots = [] } = {}) {
  const [entered, changed] = directory(cwd, roots);
  const data = stdin === undefined || stdin === null ? null : toBytes(stdin);
  const staged = data !== null && data.length > STDIN_INLINE ? data : null;
  const given = { split: true, stdin: false };
  if (timeout !== undefined) given.timeout_ms = milliseconds("timeout", timeout);
  if (idleTimeout !== undefined) given.idle_timeout_ms = milliseconds("idleTimeout", idleTimeout);
  if (entered !== null) given.cwd = entered;
  const fed = (call) => ({ input: { ...given, command: call, stdin: data !== null }, stdin: data, staged: null });
  const hasEnvironment = env !== undefined && Object.keys(env).length > 0;
  if (typeof command === "string" && !hasEnvironment && changed === null && staged === null) return fed(command);
  const words = withEnvironment(toWords(command), env);
  if (words.reduce((sum, word) => sum + word.length + 1, 0) > ARGUMENTS_MAX) {
    throw new RangeError(`a command has at most ${ARGUMENTS_MAX} bytes of arguments`);
  }
  const texts = toTexts(words);
  if (texts !== null && changed === null && staged === null) return fed(texts);
  const number = texts === null ? words.length : 0;
  const launcher = ["bash", "-c", LAUNCHER, "lazaret", String(number), changed ?? "", "", ...(texts ?? [])];
  if (texts === null) {
    // The launcher reads so many arguments and not a byte more; the command has the rest, or the file.
    const packed = words.flatMap((word) => [word, ZERO]);
    const feed = Buffer.concat(staged === null && data !== null ? [...packed, data] : packed);
    return { input: { ...given, command: launcher, stdin: true }, stdin: feed, staged };
  }
  if (staged !== null) return { input: { ...given, command: launcher }, stdin: null, staged };
  return fed(launcher);
}

/** A plan with the name of the file that holds what was staged. */
export function withFile(planned, name) {
  const command = [...planned.input.command];
  command[FILE_AT] = name;
  return { input: { ...planned.input, command }, stdin: planned.stdin, staged: null };
}

/** The lines that feed a call, the last of which ends its input. */
export function* stdinLines(id, data) {
  for (let at = 0; at < data.length; at += STDIN_PART) {
    yield { op: "stdin", id, stdinBase64: data.subarray(at, at + STDIN_PART).toString("base64") };
  }
  yield { op: "stdin", id, stdinEnd: true };
}

const ZERO = Buffer.of(0);

/** Text, bytes or a view of them as a buffer. */
export function toBytes(data) {
  if (typeof data === "string") {
    if (/[\uD800-\uDFFF]/u.test(data)) throw new RangeError("text with half a character");
    return Buffer.from(data);
  }
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  throw new TypeError("a string or bytes");
}

// The directory for the tool to enter, or else for the launcher, as only the cell has it.
function directory(cwd, roots) {
  if (cwd === undefined || cwd === null) return [null, null];
  const normal = path.posix.normalize(cwd).replace(/(.)\/$/, "$1");
  const outside = path.posix.isAbsolute(cwd) && !roots.some((root) => normal === root || normal.startsWith(`${root}/`));
  return outside ? [null, cwd] : [cwd, null];
}

function toWords(command) {
  if (typeof command === "string") return ["bash", "-c", command].map(toBytes);
  const words = command.map(toBytes);
  if (words.length === 0) throw new RangeError("a command needs a program");
  if (words.some((word) => word.includes(0))) throw new RangeError("a command cannot contain a NUL byte");
  return words;
}

function withEnvironment(words, env = {}) {
  const entries = Object.entries(env);
  if (entries.length === 0) return words;
  const named = entries.map(([name, value]) => {
    if (name === "" || /[=\0]/.test(name) || value.includes("\0")) {
      throw new RangeError(`${JSON.stringify(name)} cannot be set in an environment`);
    }
    return toBytes(`${name}=${value}`);
  });
  // A program whose name has a `=` would be taken for one more variable.
  const hidden = words[0].includes("=") ? ["bash", "-c", 'exec -- "$@"', "lazaret"].map(toBytes) : [];
  return [toBytes("env"), toBytes("--"), ...named, ...hidden, ...words];
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// The words as text; null where that cannot be, or where they are too many for a call.
function toTexts(words) {
  if (words.reduce((sum, word) => sum + word.length + ARGUMENT_COST, 0) > INLINE_ARGUMENTS) return null;
  // In JSON a control character takes six bytes.
  const controls = words.reduce((sum, word) => sum + word.reduce((count, byte) => count + (byte < 32 ? 1 : 0), 0), 0);
  if (controls > INLINE_ARGUMENTS / 6) return null;
  try {
    return words.map((word) => UTF8.decode(word));
  } catch {
    return null;
  }
}

function milliseconds(name, seconds) {
  if (!(Number.isFinite(seconds) && seconds > 0)) throw new RangeError(`${name}: a positive number of seconds`);
  return Math.min(Math.ceil(seconds * 1000), TIMEOUT_MAX_MS);
}
