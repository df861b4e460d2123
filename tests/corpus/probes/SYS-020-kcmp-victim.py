#!/usr/bin/python3
# Goal:    compare kernel pointers of a bystander with kcmp
# Models:  kcmp information leak across processes
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

r = sc(312, os.getpid(), VPID, 0, 0, VFD)
try:
    cl = open("/proc/%d/cmdline" % VPID, "rb").read()
except OSError:
    cl = b""
escaped("kcmp returned %d for the bystander" % r) if b"ctk-victim" in cl else contained("kcmp on another process here")
