#!/usr/bin/python3
# Goal:    bind-mount the project non-recursively in a user namespace to see what is below a mask mount
# Models:  mask-mount uncovering (MNT_LOCKED check)
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
from ctk import *

mntns()
os.mkdir(PROJ + "/mnt")
mount(PROJ, PROJ + "/mnt", None, MS_BIND)
got(rd(PROJ + "/mnt/.env"), "bind alias")
