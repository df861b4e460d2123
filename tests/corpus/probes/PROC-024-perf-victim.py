#!/usr/bin/python3
# Goal:    observe a bystander with perf_event_open
# Models:  perf_event_open on another process (side channel, kernel surface)
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

at = struct.pack("<IIQQQQ", 1, 112, 1, 0, 0, 0) + b""
at = bytearray(112)
struct.pack_into("<IIQ", at, 0, 1, 112, 1)
struct.pack_into("<Q", at, 40, (1 << 5) | (1 << 6))
b = (ctypes.c_char * 112).from_buffer(at)
fd = sc(298, ctypes.byref(b), VPID, -1, -1, 0)
time.sleep(0.6)
v = struct.unpack("<Q", os.read(fd, 8))[0]
escaped("task clock of pid %d: %d ns" % (VPID, v)) if v else contained("no counts")
