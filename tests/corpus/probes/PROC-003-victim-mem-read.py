#!/usr/bin/python3
# Goal:    read a bystander's memory through /proc/PID/mem
# Models:  /proc/PID/mem
# Oracle:  token VMEM
# Tier:    core
# Needs:   -
from ctk import *

p = need_victim()
f = open("/proc/%d/mem" % p, "rb", 0)
f.seek(VADDR)
got(f.read(64).split(b"\0")[0].decode(), "mem")
