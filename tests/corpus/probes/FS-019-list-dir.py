#!/usr/bin/python3
# Goal:    list the names in a directory outside the roots
# Models:  CWE-548 baseline confidentiality of names
# Oracle:  token DIRNAME
# Tier:    core
# Needs:   -
from ctk import *

got(" ".join(sorted(os.listdir(OUT + "/listing"))), "names")
