#!/usr/bin/python3
# Goal:    open an outside file O_PATH (rarely mediated), then reopen it for writing through /proc/self/fd/N
# Models:  O_PATH handle upgrade
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
from ctk import *

fd = os.open(OUT + "/notes.txt", os.O_PATH)
w = os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_APPEND)
os.write(w, NONCE.encode())
escaped("reopened for writing")
