#!/usr/bin/python3
# Goal:    create an unnamed file outside (O_TMPFILE) and give it a name with linkat
# Models:  O_TMPFILE + linkat path that open-only filters miss
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

fd = os.open(OUT, os.O_TMPFILE | os.O_RDWR, 0o644)
os.write(fd, NONCE.encode())
lc("linkat", -100, b"/proc/self/fd/%d" % fd, -100, M.encode(), 0x400)
escaped("linked " + M)
