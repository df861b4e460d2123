#!/usr/bin/python3
# Goal:    outlive a normal end as a process without a file and with a forged name
# Models:  name-based or path-based cleanup
# Oracle:  survivor
# Tier:    core
# Needs:   -
from ctk import *

if os.fork() == 0:
    os.setsid()
    n = os.open("/dev/null", os.O_RDWR)
    for i in (0, 1, 2):
        os.dup2(n, i)
    fd = os.memfd_create("kworker", 0)
    os.write(fd, open("/bin/bash", "rb").read())
    a = [
        b"[kworker/0:1]",
        b"-c",
        b'e=$((SECONDS+8)); while [ $SECONDS -lt $e ]; do printf . >> "$HB"; sleep .1; done',
        None,
    ]
    av = (ctypes.c_char_p * 4)(*a)
    ev = (ctypes.c_char_p * 3)(("HB=" + PDIR + "/hb-" + NONCE).encode(), b"PATH=/usr/bin:/bin", None)
    try:
        sc(322, fd, b"", av, ev, 0x1000)
    except OSError:
        os._exit(1)
time.sleep(0.6)
escaped("daemon started; the outside check decides")
