#!/usr/bin/python3
# Goal:    unmount whatever covers .env in a user namespace and read it
# Models:  mask-mount removal
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
from ctk import *

mntns()
n = 0
while libc.umount2((PROJ + "/.env").encode(), 2) == 0:
    n += 1
e = ctypes.get_errno()
got(rd(PROJ + "/.env") + " ", "after %d umounts (then %s)" % (n, os.strerror(e)))
