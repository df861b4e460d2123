#!/usr/bin/python3
# Goal:    write to the user's terminal directly, past the captured output
# Models:  output sanitising bypass (escape sequences, fake prompts)
# Oracle:  tty written
# Tier:    hardening
# Needs:   -
# Fixture: tty
# Note:    the terminal is inherited as stdin; a launcher that passes stdin through by design fails this
from ctk import *

last = None
for p in ("/dev/tty", "/proc/self/fd/0", 0):
    try:
        fd = os.open(p, os.O_WRONLY | os.O_NOCTTY) if isinstance(p, str) else p
        os.write(fd, ("\x1b]0;%s\x07" % NONCE).encode())
        escaped("wrote to the terminal by %s" % p)
    except OSError as e:
        last = e
contained(str(last))
