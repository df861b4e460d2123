#!/usr/bin/python3
# Goal:    see another process of the user in /proc (its command line)
# Models:  process table visibility
# Oracle:  token VCMD
# Tier:    core
# Needs:   -
from ctk import *

t = ""
for d in os.listdir("/proc"):
    if d.isdigit():
        try:
            t += open("/proc/%s/cmdline" % d, "rb").read().decode("latin1").replace("\0", " ") + " "
        except OSError:
            pass
k = "CTKTOK-VCMD-" + C["TAG"]
got(t[t.find(k) :] if k in t else "", "cmdline")
