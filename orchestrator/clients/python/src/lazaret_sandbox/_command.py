"""How a command with its directory, environment and input becomes a call of the tool `bash`.

What the tool takes as it is goes there as it is. The rest needs a launcher inside the cell, a few lines of bash before the command:
a directory outside the two roots, which only the cell can enter; more arguments than go into a call; an input of many megabytes.
The launcher is as confined as the command, so nothing is decided here that would have to hold.
"""

from __future__ import annotations

import base64
import math
import os
import posixpath
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Sequence, Union

Argument = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Command = Union[str, Sequence[Argument]]

ARGUMENTS_MAX = 2 << 20
"""Bytes of all arguments of a command: what Linux allows with its usual stack."""
_INLINE_ARGUMENTS = 900_000
"""Bytes of arguments that go into a call; the tool takes a million, with nine more for each."""
_ARGUMENT_COST = 9
STDIN_INLINE = 192 << 10
"""Bytes of standard input that a call is fed: fewer than the executor takes in before the command reads any, so that a command that
reads nothing holds up nobody. A longer one is put into a file of the cell first."""
STDIN_PART = 96 << 10
"""Bytes of input in a line; not more than the executor takes at once, in base64 no more than it reads at once."""
_TIMEOUT_MS_MAX = 86_400_000

# $1: how many arguments come on standard input. $2: the working directory, or nothing. $3: the file that is to be standard input, or
# nothing; it is removed, so that it lives as long as the command reads it. In the flat tier the cell's /tmp is in TMPDIR: programs open
# by either name, and nobody can enter a directory for another.
_LAUNCHER = """n=$1 d=$2 f=$3; shift 3
if [ "$n" != 0 ]; then mapfile -d '' -n "$n" -t a || exit 126; set -- "${a[@]}"; fi
case $d in /tmp|/tmp/*) if [ -d "${TMPDIR:-/tmp}${d#/tmp}" ]; then d=$TMPDIR${d#/tmp}; fi ;; esac
if [ -n "$d" ]; then cd -- "$d" || exit 127; fi
if [ -n "$f" ]; then exec <"$f" || exit 126; rm -f -- "$f"; fi
unset n d f a
exec -- "$@\""""

# Makes a file that only this session has, fills it from standard input, and prints its name.
STAGE = 'f=$(mktemp) && cat >"$f" && printf %s "$f"'


@dataclass(frozen=True)
class Plan:
    """What to call, and with which input."""

    input: dict[str, Any]
    """Of the tool `bash`."""
    stdin: bytes | None
    """What the call is fed; None: it has no standard input."""
    staged: bytes | None = field(default=None, repr=False)
    """What has to be in a file before; then the file's name completes the input (`with_file`)."""

    def with_file(self, name: str) -> Plan:
        """With the name of the file that holds `staged`."""
        command = list(self.input["command"])
        command[6] = name
        return Plan({**self.input, "command": command}, self.stdin)


def plan(
    command: Command,
    *,
    stdin: bytes | str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    idle_timeout: float | None = None,
    roots: Sequence[str] = (),
) -> Plan:
    """The call for a command. `roots` are the session's project and central root."""
    entered, changed = _directory(cwd, roots)
    data = stdin.encode() if isinstance(stdin, str) else stdin
    staged = data if data is not None and len(data) > STDIN_INLINE else None
    given: dict[str, Any] = {"split": True, "stdin": False}
    if timeout is not None:
        given["timeout_ms"] = _milliseconds("timeout", timeout)
    if idle_timeout is not None:
        given["idle_timeout_ms"] = _milliseconds("idle_timeout", idle_timeout)
    if entered is not None:
        given["cwd"] = entered
    if isinstance(command, str) and not env and changed is None and staged is None:
        return _with_input({**given, "command": command}, data)
    words = _with_environment(_words(command), env)
    if sum(len(word) + 1 for word in words) > ARGUMENTS_MAX:
        raise ValueError(f"a command has at most {ARGUMENTS_MAX} bytes of arguments")
    texts = _texts(words)
    if texts is not None and changed is None and staged is None:
        return _with_input({**given, "command": texts}, data)
    number = 0 if texts is not None else len(words)
    launcher = ["bash", "-c", _LAUNCHER, "lazaret", str(number), changed or "", "", *(texts or ())]
    if texts is None:
        # The launcher reads so many arguments and not a byte more; the command has the rest, or the file.
        packed = b"".join(word + b"\0" for word in words)
        data = packed if staged is not None else packed + (data or b"")
        return Plan({**given, "command": launcher, "stdin": True}, data, staged)
    if staged is not None:
        return Plan({**given, "command": launcher}, None, staged)
    return _with_input({**given, "command": launcher}, data)


def _with_input(given: dict[str, Any], data: bytes | None) -> Plan:
    return Plan({**given, "stdin": data is not None}, data)


def _directory(cwd: str | os.PathLike[str] | None, roots: Sequence[str]) -> tuple[str | None, str | None]:
    """The directory for the tool to enter, or else for the launcher, as only the cell has it."""
    if cwd is None:
        return None, None
    name = os.fspath(cwd)
    normal = posixpath.normpath(name)
    outside = posixpath.isabs(name) and not any(normal == root or normal.startswith(root + "/") for root in roots)
    return (None, name) if outside else (name, None)


def _words(command: Command) -> list[bytes]:
    if isinstance(command, str):
        return [b"bash", b"-c", os.fsencode(command)]
    words = [os.fsencode(word) for word in command]
    if not words:
        raise ValueError("a command needs a program")
    if any(b"\0" in word for word in words):
        raise ValueError("a command cannot contain a NUL byte")
    return words


def _with_environment(words: list[bytes], env: Mapping[str, str] | None) -> list[bytes]:
    if not env:
        return words
    entries = []
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ValueError(f"{name!r} cannot be set in an environment")
        entries.append(os.fsencode(f"{name}={value}"))
    # A program whose name has a `=` would be taken for one more variable.
    hidden = [b"bash", b"-c", b'exec -- "$@"', b"lazaret"] if b"=" in words[0] else []
    return [b"env", b"--", *entries, *hidden, *words]


def _texts(words: Sequence[bytes]) -> list[str] | None:
    """The words as text; None where that cannot be, or where they are too many for a call."""
    if sum(len(word) + _ARGUMENT_COST for word in words) > _INLINE_ARGUMENTS:
        return None
    # In JSON a control character takes six bytes.
    if sum(1 for word in words for byte in word if byte < 32) > _INLINE_ARGUMENTS // 6:
        return None
    try:
        return [word.decode() for word in words]
    except UnicodeDecodeError:
        return None


def _milliseconds(name: str, seconds: float) -> int:
    if not (isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{name}: a positive number of seconds, not {seconds!r}")
    return min(math.ceil(seconds * 1000), _TIMEOUT_MS_MAX)


def stdin_lines(call: int, data: bytes) -> Iterator[dict[str, Any]]:
    """The lines that feed a call, the last of which ends its input."""
    for start in range(0, len(data), STDIN_PART):
        part = data[start : start + STDIN_PART]
        yield {"op": "stdin", "id": call, "stdinBase64": base64.b64encode(part).decode()}
    yield {"op": "stdin", "id": call, "stdinEnd": True}
