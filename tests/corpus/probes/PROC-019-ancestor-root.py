#!/usr/bin/python3
# Goal:    write outside through /proc/<ppid>/root and /proc/<ppid>/cwd
# Models:  /proc/<ppid>/root (supervisor left in the same pid namespace)
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

for p in ancestors():
    for pre in ("/proc/%d/root" % p,):
        try:
            mark(pre + M)
            escaped("through " + pre)
        except OSError as e:
            last = e
try:
    escaped("last: " + str(last)) if os.path.exists(M) else contained(str(last))
except NameError:
    contained("no visible ancestor")
