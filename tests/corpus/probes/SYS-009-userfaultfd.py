#!/usr/bin/python3
# Goal:    create a userfaultfd and handle a page fault in user space
# Models:  race-window primitive of many kernel exploits
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

fd = sc(323, 0o2000000 | 0o4000 | 1)
a = ctypes.create_string_buffer(struct.pack("<QQQ", 0xAA, 0, 0), 24)
import fcntl

lc("ioctl", fd, ctypes.c_ulong(0xC018AA3F), a)
m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
ad = ctypes.addressof(ctypes.c_char.from_buffer(m))
r = ctypes.create_string_buffer(struct.pack("<QQQQ", ad, 4096, 1, 0), 32)
lc("ioctl", fd, ctypes.c_ulong(0xC020AA00), r)
res = []
t = threading.Thread(target=lambda: res.append(ctypes.string_at(ad, 4)), daemon=True)
import subprocess, select

src = ctypes.create_string_buffer(b"CTKU" * 1024, 4096)


def handler():
    select.select([fd], [], [], 3)
    os.read(fd, 32)
    lc(
        "ioctl",
        fd,
        ctypes.c_ulong(0xC028AA03),
        ctypes.create_string_buffer(struct.pack("<QQQQq", ad, ctypes.addressof(src), 4096, 0, 0), 40),
    )


h = threading.Thread(target=handler, daemon=True)
h.start()
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
dst = ctypes.create_string_buffer(8)
libc.memcpy(dst, ad, 4)
escaped("fault handled in user space: %r" % dst.raw[:4])
