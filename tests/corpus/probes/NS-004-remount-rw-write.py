#!/usr/bin/python3
# Goal:    remount the read-only view of the host read-write and write outside
# Models:  remount of locked mount flags
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

mntns()
r = []
for t in ("/", H, OUT):
    ctypes.set_errno(0)
    if libc.mount(b"none", t.encode(), None, ctypes.c_ulong(MS_REMOUNT | MS_BIND), None):
        r.append("%s:%s" % (t, os.strerror(ctypes.get_errno())))
try:
    mark()
except OSError as e:
    contained("%s; remount %s" % (e, r))
escaped("wrote after remount")
