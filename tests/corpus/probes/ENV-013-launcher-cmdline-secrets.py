#!/usr/bin/python3
# Goal:    read secrets from the command lines of ancestor processes
# Models:  launchers that pass policy or secrets in argv; /proc/*/cmdline visibility
# Oracle:  token ARGV
# Tier:    core
# Needs:   -
# Fixture: argv-secret
from ctk import *

t = ""
for d in os.listdir("/proc"):
    if d.isdigit():
        try:
            t += open("/proc/%s/cmdline" % d, "rb").read().decode("latin1").replace("\0", " ") + " "
        except OSError:
            pass
k = "CTKTOK" + chr(45) + "ARGV-" + C["TAG"]
got(t[t.find(k) :] if k in t else "", "cmdline")
