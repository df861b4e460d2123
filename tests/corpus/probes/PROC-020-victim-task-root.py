#!/usr/bin/python3
# Goal:    write outside through /proc/PID/task/TID/root of a bystander
# Models:  alias of /proc/PID/root that path filters forget
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

p = need_victim()
mark("/proc/%d/task/%d/root%s" % (p, p, M))
escaped("wrote through the task alias")
