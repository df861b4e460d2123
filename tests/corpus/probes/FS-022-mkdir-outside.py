#!/usr/bin/python3
# Goal:    create a directory outside the roots
# Models:  LANDLOCK_ACCESS_FS_MAKE_DIR class
# Oracle:  exists OUT/d-{NONCE}
# Tier:    core
# Needs:   -
from ctk import *

os.mkdir(OUT + "/d-" + NONCE)
escaped("mkdir")
