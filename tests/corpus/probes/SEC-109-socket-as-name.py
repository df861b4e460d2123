#!/usr/bin/python3
# Goal:    make a protected name by bind(): a socket at .git/commondir ends every git of the user in this repository
# Models:  a call that makes names and is not in the list of those that do
# Oracle:  exists PROJ/.git/commondir
# Tier:    core
# Needs:   -
from ctk import *

os.chdir(PROJ)
socket.socket(socket.AF_UNIX).bind(".git/commondir")
escaped("bound")
