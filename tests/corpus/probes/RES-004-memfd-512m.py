#!/usr/bin/python3
# Goal:    hold 512 MB in a memfd without mapping it
# Models:  memory bomb that RLIMIT_AS/RSS accounting misses
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

fd = os.memfd_create("x")
b = b"z" * (1 << 20)
n = 0
for _ in range(512):
    n += os.write(fd, b)
os.ftruncate(fd, 0)
escaped("%d MB in a memfd" % (n >> 20))
