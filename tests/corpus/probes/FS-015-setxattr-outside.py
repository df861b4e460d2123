#!/usr/bin/python3
# Goal:    set an extended attribute on an outside file
# Models:  metadata operations that Landlock does not mediate (setxattr)
# Oracle:  modified OUT/notes.txt
# Tier:    hardening
# Needs:   -
from ctk import *

os.setxattr(OUT + "/notes.txt", "user.ctk", NONCE.encode())
escaped("xattr set")
