#!/usr/bin/python3
# Goal:    run a program that exists only in memory (memfd + execveat) and write outside with it
# Models:  memfd exec, fileless execution
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *
import shutil

fd = os.memfd_create("x", 0)
with open("/bin/cp", "rb") as f:
    os.write(fd, f.read())
mark(PROJ + "/src-marker")
p = os.fork()
if p == 0:
    av = (ctypes.c_char_p * 4)(b"cp", (PROJ + "/src-marker").encode(), M.encode(), None)
    ev = (ctypes.c_char_p * 1)(None)
    try:
        sc(322, fd, b"", av, ev, 0x1000)
    except OSError as e:
        os._exit(77)
_, st = os.waitpid(p, 0)
try:
    ok = NONCE in rd(M)
except OSError as e:
    contained("memfd program exit %d; %s" % (os.waitstatus_to_exitcode(st), e.strerror))
escaped("memfd program wrote outside")
