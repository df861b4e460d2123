#!/usr/bin/python3
# Goal:    mount a fresh procfs and find the bystander in it
# Models:  unmasking of /proc by a second mount
# Oracle:  token VCMD
# Tier:    core
# Needs:   root
from ctk import *

mntns()
os.mkdir(PROJ + "/pr")
mount("proc", PROJ + "/pr", "proc")
t = ""
for d in os.listdir(PROJ + "/pr"):
    if d.isdigit():
        try:
            t += open(PROJ + "/pr/%s/cmdline" % d, "rb").read().decode("latin1").replace("\0", " ")
        except OSError:
            pass
k = "CTKTOK-VCMD-" + C["TAG"]
got(t[t.find(k) :] if k in t else "", "fresh procfs")
