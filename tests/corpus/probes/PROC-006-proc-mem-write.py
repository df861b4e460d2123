#!/usr/bin/python3
# Goal:    change a bystander's memory through /proc/PID/mem
# Models:  /proc/PID/mem write
# Oracle:  victim MEM {NONCE}
# Tier:    core
# Needs:   -
from ctk import *

p = need_victim()
f = open("/proc/%d/mem" % p, "r+b", 0)
f.seek(int(C["VTARGET"], 16))
f.write(NONCE.encode()[:40] + b"\0")
time.sleep(0.2)
escaped("wrote into pid %d" % p)
