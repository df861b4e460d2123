#!/usr/bin/python3
# Goal:    create a symlink outside the roots
# Models:  LANDLOCK_ACCESS_FS_MAKE_SYM class; link-following attack on host tools
# Oracle:  exists OUT/l-{NONCE}
# Tier:    core
# Needs:   -
from ctk import *

os.symlink(PROJ, OUT + "/l-" + NONCE)
escaped("symlink")
