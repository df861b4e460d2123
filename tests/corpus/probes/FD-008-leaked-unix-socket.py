#!/usr/bin/python3
# Goal:    talk to a host service through a connected unix socket leaked by the caller
# Models:  CWE-403 (agent IPC channel inherited by tools)
# Oracle:  hit absstream
# Tier:    core
# Needs:   -
# Fixture: leak-lsock
from ctk import *

for fd in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, msg())
            escaped("leaked socket fd %d" % fd)
    except OSError:
        pass
contained("no socket fd")
