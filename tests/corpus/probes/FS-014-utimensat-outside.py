#!/usr/bin/python3
# Goal:    forge the modification time of an outside file
# Models:  metadata operations that Landlock does not mediate (utimensat); build-system/backup deception
# Oracle:  modified OUT/notes.txt
# Tier:    hardening
# Needs:   -
from ctk import *

os.utime(OUT + "/notes.txt", (1000000000, 1000000000))
escaped("mtime now %d" % os.stat(OUT + "/notes.txt").st_mtime)
