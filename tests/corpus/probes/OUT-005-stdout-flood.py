#!/usr/bin/python3
# Goal:    flood standard output with 64 MB
# Models:  unbounded output capture (memory exhaustion of the agent)
# Oracle:  bytes 67108864
# Tier:    hardening
# Needs:   -
from ctk import *

b = b"x" * 1023 + b"\n"
for _ in range(1024):
    os.write(1, b * 64)
escaped("64 MB printed")
