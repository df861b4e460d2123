#!/usr/bin/python3
# Goal:    move an outside file into the project with rename(2)
# Models:  path policy that checks only the destination of rename
# Oracle:  gone OUT/movable.txt
# Tier:    core
# Needs:   -
from ctk import *

os.rename(OUT + "/movable.txt", PROJ + "/stolen.txt")
escaped("renamed outside file into the project: " + rd(PROJ + "/stolen.txt")[:40])
