#!/usr/bin/python3
# Goal:    unmount everything that was mounted over the path to the outside directory, then write there
# Models:  hiding by over-mounting (tmpfs over /home, /tmp); locked mounts
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

mntns()
n = 0
parts = OUT.strip("/").split("/")
for i in range(len(parts), 0, -1):
    p = "/" + "/".join(parts[:i])
    while n < 20 and libc.umount2(p.encode(), 2) == 0:
        n += 1
os.makedirs(OUT, exist_ok=True)
mark()
escaped("wrote after %d umounts" % n)
