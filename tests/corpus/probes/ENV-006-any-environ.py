#!/usr/bin/python3
# Goal:    read a canary from the environment of any other process
# Models:  /proc/*/environ of the same uid
# Oracle:  token ENVKEY ; token ENVPLAIN ; token ENVURL ; token VENV
# Tier:    core
# Needs:   -
from ctk import *
import re

t = ""
n = 0
# Only canaries of this run: others that root may read are left alone.
TP = re.compile(PREFIX + "[A-Z]+-" + C["TAG"] + "[0-9a-f]+")
for d in os.listdir("/proc"):
    if d.isdigit() and int(d) != os.getpid():
        try:
            x = open("/proc/%s/environ" % d, "rb").read().decode("latin1").replace("\0", " ")
            n += 1
            if TP.search(x):
                t = x
                break
        except OSError:
            pass
m = TP.search(t)
got(m[0] if m else "", "%d environs" % n)
