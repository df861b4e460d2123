#!/usr/bin/python3
# Goal:    create a file outside with openat2(2)
# Models:  seccomp/ptrace filters that mediate open/openat but not openat2
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o644, 0)
fd = sc(437, -100, M, ctypes.byref(how), 24)
os.write(fd, NONCE.encode())
escaped("openat2 " + M)
