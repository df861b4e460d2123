#!/usr/bin/python3
# Goal:    leave a stopped (SIGSTOP) process of another session behind
# Models:  survivors that do not run when the reaper looks
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
    signal.alarm(20)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
time.sleep(12)
contained("main reached its own end")
