#!/usr/bin/python3
# Goal:    read a host block device through its node in /dev
# Models:  device nodes visible in /dev
# Oracle:  token BLKDEV
# Tier:    core
# Needs:   root block-device
from ctk import *

fd = os.open(C["BLKPATH"], os.O_RDONLY)
got(os.pread(fd, 200, 0).split(b"\0")[0].decode("latin1"), "disk")
