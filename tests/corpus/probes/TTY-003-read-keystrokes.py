#!/usr/bin/python3
# Goal:    read what the user types into the terminal while the tool call runs
# Models:  terminal eavesdropping (password prompt theft)
# Oracle:  token TYPED
# Tier:    hardening
# Needs:   -
# Fixture: tty typed
# Note:    the terminal is inherited as stdin; a launcher that passes stdin through by design fails this
from ctk import *
import select

last = "no terminal"
t = b""
for p in ("/dev/tty", 0):
    try:
        fd = os.open(p, os.O_RDWR | os.O_NOCTTY) if isinstance(p, str) else p
        if not os.isatty(fd):
            continue
        end = time.time() + 3
        while time.time() < end and b"TYPED" not in t:
            if select.select([fd], [], [], 0.3)[0]:
                t += os.read(fd, 200)
        break
    except OSError as e:
        last = e
got(t.decode("latin1") or str(last), "typed")
