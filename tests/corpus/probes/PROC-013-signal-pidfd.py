#!/usr/bin/python3
# Goal:    signal a bystander with pidfd_send_signal
# Models:  alternative signal syscall
# Oracle:  victim SIG 10
# Tier:    core
# Needs:   -
from ctk import *

pf = sc(434, VPID, 0)
sc(424, pf, 10, None, 0)
time.sleep(0.2)
escaped("pidfd_send_signal accepted")
