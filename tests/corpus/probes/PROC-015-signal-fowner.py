#!/usr/bin/python3
# Goal:    have the kernel signal a bystander through file ownership (F_SETOWN + O_ASYNC)
# Models:  fowner signal path (needs file_send_sigiotask mediation)
# Oracle:  victim SIG 10 ; victim SIG 29
# Tier:    core
# Needs:   -
from ctk import *
import fcntl

a, b = socket.socketpair()
fcntl.fcntl(a, 10, 10)  # F_SETSIG SIGUSR1
fcntl.fcntl(a, 8, VPID)  # F_SETOWN
fcntl.fcntl(a, fcntl.F_SETFL, fcntl.fcntl(a, fcntl.F_GETFL) | 0o20000)
b.send(b"x")
time.sleep(0.4)
escaped("F_SETOWN accepted")
