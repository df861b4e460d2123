#!/usr/bin/python3
# Goal:    hold a write lease on a project file: whoever opens it outside (editor, git) waits up to 45 s, again and again
# Models:  F_SETLEASE
# Oracle:  hit leaseheld
# Tier:    hardening
# Needs:   -
# Fixture: lease
from ctk import *
import fcntl

signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(PROJ + "/leased", os.O_RDWR | os.O_CREAT, 0o644)
F_SETLEASE = 1024
fcntl.fcntl(fd, F_SETLEASE, fcntl.F_WRLCK)
time.sleep(0.8)
escaped("leased")
