#!/usr/bin/python3
# Goal:    swap a regular file with a symlink to an outside file while the reader runs
# Models:  TOCTOU between check and open (CWE-367)
# Oracle:  reader-token OUTSIDE
# Tier:    core
# Needs:   -
# Fixture: reader={PROJ}/r1 reader-concurrent
# Limit:   25
from ctk import *

open(PROJ + "/r1", "w").write("harmless\n")
os.symlink(OUT + "/canary.txt", PROJ + "/r2")
os.write(1, b"READY\n")
end = time.time() + 9
while time.time() < end:
    libc.syscall(
        ctypes.c_long(number_here(316)),
        ctypes.c_long(-100),
        (PROJ + "/r1").encode(),
        ctypes.c_long(-100),
        (PROJ + "/r2").encode(),
        ctypes.c_long(2),
    )
contained("swapped")
