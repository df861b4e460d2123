#!/usr/bin/python3
# Goal:    read the environment of a bystander process
# Models:  /proc/PID/environ
# Oracle:  token VENV
# Tier:    core
# Needs:   -
from ctk import *

p = need_victim()
got(
    open("/proc/%d/environ" % p, "rb").read().decode("latin1").replace("\0", " ").split("VICTIM_SECRET=")[-1], "environ"
)
