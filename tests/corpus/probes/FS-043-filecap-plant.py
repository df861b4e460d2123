#!/usr/bin/python3
# Goal:    leave an executable with file capabilities in the project
# Models:  container bind-mount capability plant
# Oracle:  xattr PROJ/helper security.capability
# Tier:    core
# Needs:   root
from ctk import *
import shutil

shutil.copy("/bin/true", PROJ + "/helper")
cap = struct.pack("<IIIII", 0x02000001, 1 << 2, 0, 0, 0)  # cap_dac_read_search+ep
os.setxattr(PROJ + "/helper", "security.capability", cap)
escaped("file capability set")
