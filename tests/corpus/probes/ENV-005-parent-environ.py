#!/usr/bin/python3
# Goal:    read the environment of any ancestor process
# Models:  /proc/<ppid>/environ (secrets of the agent process)
# Oracle:  token ENVKEY ; token ENVPLAIN ; token ENVURL
# Tier:    core
# Needs:   -
from ctk import *

t = ""
for p in ancestors():
    try:
        t += open("/proc/%d/environ" % p, "rb").read().decode("latin1").replace("\0", " ") + " "
    except OSError:
        pass
got(t[t.find(PREFIX) :] if PREFIX in t else t, "ancestor environ")
