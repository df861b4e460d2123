// Files of a session by commands in a cell: what the cell may read and write, and nothing else, in both tiers and for any size.
//
// The file tools (`file_read`, `file_write` …) are for models: text, bounded, undoable, only after a read. They are called by name.

import { FileError } from "./errors.js";

/** Bytes of a file that is read or written, where no other limit is given. */
export const FILE_MAX = 100 << 20;

const ABSENT = 61;
const DIRECTORY = 62;
const CLOSED = 63;
const FAILED = 64;
const OTHER = 65;

// $1: the file; $2: one byte more than is taken. Pipes and devices are refused: they might never end.
export const READ = `[ -e "$1" ] || exit ${ABSENT}
[ -d "$1" ] && exit ${DIRECTORY}
[ -f "$1" ] || exit ${OTHER}
{ head -c "$2" || exit ${FAILED}; } <"$1" || { c=$?; [ $c = ${FAILED} ] && exit ${FAILED}; exit ${CLOSED}; }`;

// $1: the file; its directories are made.
export const WRITE = `[ -d "$1" ] && exit ${DIRECTORY}
case $1 in */*) d=\${1%/*}; [ -d "\${d:-/}" ] || mkdir -p -- "$d" || exit ${CLOSED};; esac
{ cat || exit ${FAILED}; } >"$1" || { c=$?; [ $c = ${FAILED} ] && exit ${FAILED}; exit ${CLOSED}; }`;

const ERRORS = new Map([
  [ABSENT, ["ENOENT", "no such file or directory"]],
  [DIRECTORY, ["EISDIR", "is a directory"]],
  [CLOSED, ["EACCES", "permission denied"]],
  [FAILED, ["EIO", "it could not be read or written to its end"]],
  [OTHER, ["EINVAL", "not a regular file"]],
]);

/** What the exit code of `READ` or `WRITE` means; null for 0, and for what is none of theirs. */
export function fileError(code, path) {
  const found = ERRORS.get(code);
  return found ? new FileError(found[0], found[1], path) : null;
}

export function tooLarge(path, limit) {
  return new FileError("EFBIG", `more than ${limit} bytes`, path);
}
