#!/usr/bin/python3
# Goal:    atomically swap a project file with an outside file (renameat2 RENAME_EXCHANGE)
# Models:  LANDLOCK_ACCESS_FS_REFER class
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
from ctk import *

mark(PROJ + "/x")
sc(316, -100, PROJ + "/x", -100, OUT + "/notes.txt", 2)
escaped("exchanged")
