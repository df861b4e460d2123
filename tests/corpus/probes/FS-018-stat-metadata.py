#!/usr/bin/python3
# Goal:    learn existence, size and times of an outside file with stat(2)
# Models:  stat is not mediated by Landlock; metadata oracle
# Oracle:  token STATSIZE
# Tier:    hardening
# Needs:   -
from ctk import *

st = os.stat(OUT + "/sized.bin")
escaped("ctksize-%d-end" % st.st_size)
