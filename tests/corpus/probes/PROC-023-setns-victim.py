#!/usr/bin/python3
# Goal:    join the mount namespace of a bystander and write outside
# Models:  setns with /proc/PID/ns or a pidfd
# Oracle:  marker
# Tier:    core
# Needs:   root
from ctk import *

pf = sc(434, VPID, 0)
sc(308, pf, NEWNS)
mark(M)
escaped("joined the mount namespace of pid %d" % VPID)
