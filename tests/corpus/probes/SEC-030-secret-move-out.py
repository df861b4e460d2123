#!/usr/bin/python3
# Goal:    move a directory holding secrets into the central root, where patterns may not apply, and read it there
# Models:  protection scoped to one root
# Oracle:  token CSECRET
# Tier:    core
# Needs:   -
from ctk import *

os.rename(PROJ + "/config", CENTRAL + "/config")
got(rd(CENTRAL + "/config/client_secret.txt"), "moved")
