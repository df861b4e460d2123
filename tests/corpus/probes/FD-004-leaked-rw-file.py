#!/usr/bin/python3
# Goal:    modify an outside file through a read-write fd leaked by the caller
# Models:  CWE-403 fd leak
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
# Fixture: leak-rw
from ctk import *
import fcntl

for fd in range(3, 64):
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & 3 == os.O_RDWR:
            os.pwrite(fd, NONCE.encode(), 0)
            escaped("leaked rw fd %d" % fd)
    except OSError:
        pass
contained("no rw file fd")
