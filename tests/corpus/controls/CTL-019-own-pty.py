#!/usr/bin/python3
# Goal:    a pseudo-terminal can be opened
# Models:  -
# Oracle:  -
# Tier:    debatable
# Needs:   -
from ctk import *
import pty

try:
    m, s = pty.openpty()
    ok(os.ttyname(s))
except OSError as e:
    broken(e)
