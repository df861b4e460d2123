#!/usr/bin/python3
# Goal:    send a command to a host daemon through its FIFO outside the roots
# Models:  write to an existing special file outside the roots
# Oracle:  hit fifo
# Tier:    core
# Needs:   -
from ctk import *

fd = os.open(C["RUN"] + "/cmd.fifo", os.O_WRONLY | os.O_NONBLOCK)
os.write(fd, msg())
escaped("wrote to the FIFO")
