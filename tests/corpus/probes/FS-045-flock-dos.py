#!/usr/bin/python3
# Goal:    block a host program by holding a lock on a file that is only readable to us
# Models:  cross-boundary lock denial of service
# Oracle:  hit lockheld
# Tier:    hardening
# Needs:   -
# Fixture: lock
from ctk import *
import fcntl

time.sleep(0.3)
fd = os.open(OUT + "/db.lock", os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
time.sleep(1.2)
escaped("held an exclusive lock outside")
