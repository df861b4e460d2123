#!/usr/bin/python3
# Goal:    allocate and touch 512 MB in one process
# Models:  memory bomb (bounded)
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

p = os.fork()
if p == 0:
    try:
        m = mmap.mmap(-1, 512 << 20)
        for i in range(0, 512 << 20, 4096):
            m[i] = 1
    except (OSError, MemoryError, ValueError):
        os._exit(3)
    os._exit(42)
_, st = os.waitpid(p, 0)
escaped("512 MB touched") if os.waitstatus_to_exitcode(st) == 42 else contained(
    "child ended with %d" % os.waitstatus_to_exitcode(st)
)
