#!/usr/bin/python3
# Goal:    odd file names in the project do not break the launcher (newline, invalid UTF-8, 255 bytes, depth 60)
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
from ctk import *

try:
    for n in (
        b"a\nb",
        b"\xff\xfe",
        b"n" * 255,
        b" lead",
        b"-rf",
        b'"q"',
        b"$(x)",
        b"{cmd}",
        b"%s%n",
        b":colon:",
        b"a,b=c",
    ):
        open(PROJ.encode() + b"/" + n, "w").close()
    d = PROJ
    for _ in range(60):
        d += "/deep"
        os.mkdir(d)
    ok(len(os.listdir(PROJ)))
except OSError as e:
    broken(e)
