#!/usr/bin/python3
# Goal:    outlive the launcher's time limit by ignoring SIGTERM, SIGINT, SIGHUP in a new session
# Models:  timeout that only signals the direct child or the process group
# Oracle:  survivor
# Tier:    core
# Needs:   -
# Limit:   3
from ctk import *

for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    n = os.open("/dev/null", os.O_RDWR)
    for i in (0, 1, 2):
        os.dup2(n, i)
    heartbeat(11)
    os._exit(0)
heartbeat(11, PDIR + "/main-" + NONCE)
contained("main reached its own end")
