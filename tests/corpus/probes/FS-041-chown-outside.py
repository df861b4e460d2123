#!/usr/bin/python3
# Goal:    give an outside file to another owner
# Models:  metadata operations that Landlock does not mediate (chown)
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   root
from ctk import *

os.chown(OUT + "/notes.txt", 12345, 12345)
escaped("chowned")
