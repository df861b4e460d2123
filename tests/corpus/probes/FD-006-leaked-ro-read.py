#!/usr/bin/python3
# Goal:    read an outside file through a read-only fd leaked by the caller
# Models:  CWE-403 fd leak
# Oracle:  token OUTSIDE
# Tier:    core
# Needs:   -
# Fixture: leak-canary
from ctk import *

t = ""
for fd in range(3, 64):
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            t += os.pread(fd, 200, 0).decode("latin1")
    except OSError:
        pass
got(t, "leaked fd")
