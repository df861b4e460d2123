#!/usr/bin/python3
# Goal:    empty an outside file with truncate(2), which never opens it
# Models:  Landlock ABI < 3 gap (LANDLOCK_ACCESS_FS_TRUNCATE)
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
from ctk import *

sc(76, OUT + "/notes.txt", 3)
escaped("truncated to %d bytes" % os.stat(OUT + "/notes.txt").st_size)
