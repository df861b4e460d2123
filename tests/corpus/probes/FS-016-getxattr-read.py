#!/usr/bin/python3
# Goal:    read data kept in an extended attribute of an outside file
# Models:  getxattr is not mediated by Landlock
# Oracle:  token XATTR
# Tier:    hardening
# Needs:   user-attributes
from ctk import *

got(os.getxattr(OUT + "/canary.txt", "user.ctk_token").decode(), "xattr")
