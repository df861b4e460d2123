#!/usr/bin/python3
# Goal:    print one line of 64 MB without a newline
# Models:  line-buffered readers (memory exhaustion)
# Oracle:  bytes 67108864
# Tier:    hardening
# Needs:   -
from ctk import *

b = b"L" * 65536
for _ in range(1024):
    os.write(1, b)
os.write(1, b"\n")
escaped("one line of 64 MB printed")
