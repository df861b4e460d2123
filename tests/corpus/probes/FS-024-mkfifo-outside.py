#!/usr/bin/python3
# Goal:    create a FIFO outside the roots
# Models:  LANDLOCK_ACCESS_FS_MAKE_FIFO class; hang attack on host readers
# Oracle:  exists OUT/p-{NONCE}
# Tier:    core
# Needs:   -
from ctk import *

os.mkfifo(OUT + "/p-" + NONCE)
escaped("mkfifo")
