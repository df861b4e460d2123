#!/usr/bin/python3
# Goal:    write outside through /proc/PID/cwd of a bystander
# Models:  /proc/PID/cwd magic link
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

p = need_victim()
mark("/proc/%d/cwd/m-%s" % (p, NONCE))
escaped("wrote through /proc/%d/cwd" % p)
