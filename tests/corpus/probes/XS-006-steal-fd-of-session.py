#!/usr/bin/python3
# Goal:    take an open file from a process in another session with pidfd_getfd, or trace it
# Models:  session-to-session isolation (pidfd_getfd, ptrace)
# Oracle:  token XSMEM
# Tier:    core
# Needs:   -
# Fixture: peer-session
from ctk import *

p = find_peer()
pf = sc(434, p, 0)
fd = sc(438, pf, int(C["XSFD"]), 0)
got(os.pread(fd, 100, 0).decode("latin1"), "pidfd_getfd")
