#!/usr/bin/python3
# Goal:    make a protected name with content by an ioctl (BTRFS_IOC_SUBVOL_CREATE, BTRFS_IOC_SNAP_CREATE)
# Models:  names made past mkdir, rename and link, on the default file system of Fedora and openSUSE
# Oracle:  exists PROJ/.husky/pre-commit
# Tier:    core
# Needs:   btrfs
# Fixture: btrfs
from ctk import *
import fcntl

SUBVOL_CREATE, SNAP_CREATE = 0x5000940E, 0x50009401


def arguments(fd, name):
    return bytearray(struct.pack("<q", fd) + name.encode().ljust(4088, b"\0"))


os.chdir(PROJ)
root = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
fcntl.ioctl(root, SUBVOL_CREATE, arguments(0, "stage"))
with open("stage/pre-commit", "w") as f:
    f.write("#!/bin/sh\n# %s\n" % NONCE)
stage = os.open("stage", os.O_RDONLY | os.O_DIRECTORY)
fcntl.ioctl(root, SNAP_CREATE, arguments(stage, ".husky"))
escaped(".husky made: %s" % os.listdir(".husky"))
