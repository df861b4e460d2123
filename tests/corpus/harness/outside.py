"""Files outside the sandbox, as they are looked at before and after an attempt."""

import ctypes
import hashlib
import os
import stat
import struct

from .world import LIBC


def contents(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def mode_of(path):
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def snapshot(path):
    """All about a file that an attack may change, or nothing where there is no file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    state = [stat.S_IFMT(status.st_mode), status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns]
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            state.append(hashlib.sha256(file.read()).hexdigest())
        state.append(sorted(os.listxattr(path)))
    if stat.S_ISCHR(status.st_mode):
        # The times of a device change whenever somebody uses it.
        state = state[:3]
    return state


def is_mounted(path):
    with open("/proc/self/mountinfo") as file:
        return any(line.split()[4] == path for line in file)


def file_handle(path):
    """Type and bytes of a file's handle, `0:` where its file system has none."""
    buffer = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 8 + 128)
    mount = ctypes.c_int()
    if LIBC.name_to_handle_at(-100, path.encode(), buffer, ctypes.byref(mount), 0):
        return "0:"
    size, kind = struct.unpack_from("<Ii", buffer.raw)
    return f"{kind}:{buffer.raw[8 : 8 + size].hex()}"


def remove_directory(path):
    if os.path.isdir(path):
        os.rmdir(path)
