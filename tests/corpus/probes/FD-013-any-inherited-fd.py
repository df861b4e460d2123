#!/usr/bin/python3
# Goal:    find any inherited fd above 2 that refers to something outside (directory, file, socket) after the launcher started us
# Models:  CWE-403; launchers leaking their own fds
# Oracle:  self-report
# Tier:    core
# Needs:   -
# Fixture: leak-dir leak-canary leak-sock
from ctk import *

bad = []
for fd in sorted(int(x) for x in os.listdir("/proc/self/fd")):
    if fd < 3:
        continue
    try:
        l = os.readlink("/proc/self/fd/%d" % fd)
        s = os.fstat(fd)
    except OSError:
        continue
    if l.startswith("/proc/") or l.startswith(PDIR):
        continue
    if stat.S_ISDIR(s.st_mode) or stat.S_ISSOCK(s.st_mode) or (stat.S_ISREG(s.st_mode)):
        bad.append("%d:%s" % (fd, l))
escaped(" ".join(bad)) if bad else contained("no inherited fds")
