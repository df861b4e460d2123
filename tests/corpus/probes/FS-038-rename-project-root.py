#!/usr/bin/python3
# Goal:    rename the project root itself away and put another directory in its place
# Models:  root-swap: later launches and host tools trust a path the attacker replaced
# Oracle:  exists WORK/proj.swapped
# Tier:    core
# Needs:   -
from ctk import *

lc("rename", PROJ.encode(), (PROJ + ".swapped").encode())
escaped("project root renamed")
