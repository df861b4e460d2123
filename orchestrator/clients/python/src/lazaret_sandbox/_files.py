"""Files of a session by commands in a cell: what the cell may read and write, and nothing else, in both tiers and for any size.

The file tools (`file_read`, `file_write` …) are for models: text, bounded, undoable, only after a read. They are called by name.
"""

from __future__ import annotations

import errno
import os
from typing import Callable

FILE_MAX = 100 << 20
"""Bytes of a file that is read or written, where no other limit is given."""

_ABSENT, _DIRECTORY, _CLOSED, _FAILED, _OTHER = 61, 62, 63, 64, 65

# $1: the file; $2: one byte more than is taken. Pipes and devices are refused: they might never end.
READ = f"""[ -e "$1" ] || exit {_ABSENT}
[ -d "$1" ] && exit {_DIRECTORY}
[ -f "$1" ] || exit {_OTHER}
{{ head -c "$2" || exit {_FAILED}; }} <"$1" || {{ c=$?; [ $c = {_FAILED} ] && exit {_FAILED}; exit {_CLOSED}; }}"""

# $1: the file; its directories are made.
WRITE = f"""[ -d "$1" ] && exit {_DIRECTORY}
case $1 in */*) d=${{1%/*}}; [ -d "${{d:-/}}" ] || mkdir -p -- "$d" || exit {_CLOSED};; esac
{{ cat || exit {_FAILED}; }} >"$1" || {{ c=$?; [ $c = {_FAILED} ] && exit {_FAILED}; exit {_CLOSED}; }}"""

_ERRORS: dict[int, Callable[[str], OSError]] = {
    _ABSENT: lambda path: FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path),
    _DIRECTORY: lambda path: IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR).lower(), path),
    _CLOSED: lambda path: PermissionError(errno.EACCES, os.strerror(errno.EACCES), path),
    _FAILED: lambda path: OSError(errno.EIO, "it could not be read or written to its end", path),
    _OTHER: lambda path: OSError(errno.EINVAL, "not a regular file", path),
}


def error(code: int, path: str) -> OSError | None:
    """What the exit code of `READ` or `WRITE` means; None for 0, and for what is none of theirs."""
    make = _ERRORS.get(code)
    return make(path) if make else None


class FileTooLarge(OSError):
    """A file has more bytes than were asked for."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"more than {limit} bytes", path)
        self.limit = limit
