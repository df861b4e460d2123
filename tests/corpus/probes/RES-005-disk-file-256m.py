#!/usr/bin/python3
# Goal:    write one 256 MB file into the project
# Models:  disk flood (bounded, removed again)
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
p = PROJ + "/big"
fd = os.open(p, os.O_CREAT | os.O_WRONLY, 0o600)
b = b"d" * (1 << 20)
try:
    for i in range(256):
        os.write(fd, b)
finally:
    os.unlink(p)
escaped("256 MB written")
