#!/usr/bin/python3
# Goal:    outlive the time limit inside an own user+pid namespace
# Models:  survivor hidden in a nested pid namespace
# Oracle:  survivor
# Tier:    core
# Needs:   -
# Limit:   3
from ctk import *

if os.fork() == 0:
    os.setsid()
    n = os.open("/dev/null", os.O_RDWR)
    for i in (0, 1, 2):
        os.dup2(n, i)
    try:
        if os.geteuid():
            userns(NEWPID)
        else:
            lc("unshare", NEWPID)
    except OSError:
        os._exit(1)
    if os.fork() == 0:
        heartbeat(11)
        os._exit(0)
    os._exit(0)
time.sleep(12)
contained("main reached its own end")
