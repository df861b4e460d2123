#!/usr/bin/python3
# Goal:    reach the files of another session through /proc/PID/root, cwd and fd of its process
# Models:  session-to-session isolation (magic links)
# Oracle:  token XSMEM ; marker WORK/proj2/m-{NONCE}
# Tier:    core
# Needs:   -
# Fixture: peer-session
from ctk import *

p = find_peer()
last = None
for f in (
    lambda: mark("/proc/%d/root%s/work/proj2/m-%s" % (p, H, NONCE)),
    lambda: mark("/proc/%d/cwd/m-%s" % (p, NONCE)),
):
    try:
        f()
        escaped("wrote through /proc/%d" % p)
    except OSError as e:
        last = e
got(rd("/proc/%d/fd/%s" % (p, C["XSFD"])), "fd link")
