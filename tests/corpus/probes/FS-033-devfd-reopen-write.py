#!/usr/bin/python3
# Goal:    open an outside file read-only, then reopen it for writing through /dev/fd/N
# Models:  /proc/self/fd magic-link permission upgrade
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
from ctk import *

fd = os.open(OUT + "/notes.txt", os.O_RDONLY)
w = os.open("/dev/fd/%d" % fd, os.O_WRONLY | os.O_APPEND)
os.write(w, NONCE.encode())
escaped("reopened for writing")
