#!/usr/bin/python3
# Goal:    hard-link an outside file into the project and modify it through the link
# Models:  CWE-62 hard-link following; link(2) crosses path-based policy
# Oracle:  modified OUT/notes.txt
# Tier:    core
# Needs:   -
from ctk import *

p = PROJ + "/linked.txt"
os.link(OUT + "/notes.txt", p)
with open(p, "a") as f:
    f.write(NONCE)
escaped("outside inode modified through a hard link in the project")
