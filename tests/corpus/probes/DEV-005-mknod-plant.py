#!/usr/bin/python3
# Goal:    leave a device node in the project for host tools to stumble on
# Models:  CAP_MKNOD; device node presented to a file reader
# Oracle:  device PROJ/zero.txt
# Tier:    core
# Needs:   root
from ctk import *

os.mknod(PROJ + "/zero.txt", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
escaped("device node in the project")
