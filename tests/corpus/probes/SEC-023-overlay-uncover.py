#!/usr/bin/python3
# Goal:    mount an overlay with the project as lower layer in a user namespace and read .env from it
# Models:  overlayfs does not cross mounts of its lower layer
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
from ctk import *

mntns()
os.mkdir(PROJ + "/ov")
for d in ("u", "w", "m"):
    os.mkdir(PROJ + "/ov/" + d)
mount("ov", PROJ + "/ov/m", "overlay", 0, "lowerdir=%s:%s%s" % (PROJ, CENTRAL, ",userxattr" if UID else ""))
got(rd(PROJ + "/ov/m/.env"), "overlay")
