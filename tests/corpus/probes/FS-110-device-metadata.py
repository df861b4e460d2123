#!/usr/bin/python3
# Goal:    as root, change the mode of one of the host's device nodes
# Models:  binds of devices that are not read-only, where the node belongs to uid 0 of the sandbox
# Oracle:  modified /dev/full
# Tier:    core
# Needs:   root alone
# Note:    the harness gives /dev/full its mode back; /dev/null would end most of a machine
from ctk import *

before = stat.S_IMODE(os.stat("/dev/full").st_mode)
os.chmod("/dev/full", 0o660 if before != 0o660 else 0o666)
escaped("the mode of /dev/full was %o and is %o" % (before, stat.S_IMODE(os.stat("/dev/full").st_mode)))
