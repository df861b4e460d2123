#!/usr/bin/python3
# Goal:    flood standard error with 64 MB
# Models:  unbounded output capture on the second stream
# Oracle:  bytes 67108864
# Tier:    hardening
# Needs:   -
from ctk import *

b = b"e" * 1023 + b"\n"
for _ in range(1024):
    os.write(2, b * 64)
escaped("64 MB printed")
