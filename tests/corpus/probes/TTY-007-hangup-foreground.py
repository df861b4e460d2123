#!/usr/bin/python3
# Goal:    take over the terminal's foreground process group
# Models:  TIOCSPGRP job-control attack (stops the agent with SIGTTIN/SIGTTOU)
# Oracle:  tty pgrp
# Tier:    hardening
# Needs:   -
# Fixture: tty
from ctk import *

signal.signal(signal.SIGTTOU, signal.SIG_IGN)
last = None
for p in ("/dev/tty", 0):
    try:
        fd = os.open(p, os.O_RDWR | os.O_NOCTTY) if isinstance(p, str) else p
        if not os.isatty(fd):
            continue
        os.setpgid(0, 0)
        os.tcsetpgrp(fd, os.getpgrp())
        escaped("foreground group is now %d" % os.tcgetpgrp(fd))
    except OSError as e:
        last = e
contained(str(last))
