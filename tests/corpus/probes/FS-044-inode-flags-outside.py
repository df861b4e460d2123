#!/usr/bin/python3
# Goal:    change inode flags of an outside file through an fd that was opened read-only
# Models:  FS_IOC_SETFLAGS needs no write access to the file; not mediated by Landlock on regular files
# Oracle:  inode-flag OUT/notes.txt
# Tier:    hardening
# Needs:   -
from ctk import *
import fcntl

fd = os.open(OUT + "/notes.txt", os.O_RDONLY)
b = ctypes.c_int(0)
fcntl.ioctl(fd, 0x80086601, b)
b.value |= 0x40  # FS_NODUMP_FL
fcntl.ioctl(fd, 0x40086602, b)
escaped("nodump flag set on an outside inode")
