#!/usr/bin/python3
# Goal:    read the memory of a process in another sandboxed session
# Models:  session-to-session isolation (process_vm_readv, /proc/PID/mem)
# Oracle:  token XSMEM
# Tier:    core
# Needs:   -
# Fixture: peer-session
from ctk import *

p = find_peer()
a = int(C["XSADDR"], 16)
try:
    t = vm_read(p, a, 60)
except OSError:
    f = open("/proc/%d/mem" % p, "rb", 0)
    f.seek(a)
    t = f.read(60)
got(t.split(b"\0")[0].decode("latin1"), "memory")
