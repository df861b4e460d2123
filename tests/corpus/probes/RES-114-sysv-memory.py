#!/usr/bin/python3
# Goal:    touch 512 MB in System V segments that no process maps
# Models:  memory that counts as nobody's without a cgroup, and stays when the process ends
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
size, segments = 128 << 20, []
try:
    for _ in range(4):
        segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
        if segment < 0:
            break
        segments.append(segment)
        address = libc.shmat(segment, None, 0)
        ctypes.memset(address, 1, size)
        libc.shmdt(address)
finally:
    for segment in segments:
        libc.shmctl(segment, 0, None)
escaped("512 MB touched") if len(segments) == 4 else contained("%d of 4 segments" % len(segments))
