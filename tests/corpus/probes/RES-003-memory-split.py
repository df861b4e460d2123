#!/usr/bin/python3
# Goal:    allocate 4 x 160 MB in four processes
# Models:  memory bomb below a per-process limit (RLIMIT_AS is not a container limit)
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

ps = []
for _ in range(4):
    p = os.fork()
    if p == 0:
        try:
            m = mmap.mmap(-1, 160 << 20)
            for i in range(0, 160 << 20, 4096):
                m[i] = 1
            time.sleep(1.5)
        except (OSError, MemoryError, ValueError):
            os._exit(3)
        os._exit(42)
    ps.append(p)
r = [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in ps]
escaped("640 MB held in 4 processes") if r == [42] * 4 else contained(str(r))
