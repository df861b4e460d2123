#!/usr/bin/python3
# Goal:    open a file held open by an ancestor through /proc/<ppid>/fd
# Models:  /proc/<ppid>/fd (close-on-exec fds of the agent)
# Oracle:  token AGENTFD
# Tier:    core
# Needs:   -
from ctk import *

t = ""
for p in ancestors():
    try:
        fds = os.listdir("/proc/%d/fd" % p)
    except OSError:
        continue
    for f in fds:
        try:
            l = os.readlink("/proc/%d/fd/%s" % (p, f))
            if "agent-deleted" in l:
                t += rd("/proc/%d/fd/%s" % (p, f))
        except OSError:
            pass
got(t, "ancestor fd")
