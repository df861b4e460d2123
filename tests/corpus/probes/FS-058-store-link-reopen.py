#!/usr/bin/python3
# Goal:    the same by a descriptor that was opened for reading, after all names in the project are gone
# Models:  CWE-62; a count of names that misses those which were removed
# Oracle:  modified OUT/store.js
# Tier:    core
# Needs:   -
# Fixture: store-link
from ctk import *

fd = os.open(PROJ + "/package.js", os.O_RDONLY)
os.link(PROJ + "/package.js", PROJ + "/second.js")
os.unlink(PROJ + "/package.js")
os.unlink(PROJ + "/second.js")
with open("/proc/self/fd/%d" % fd, "w") as f:
    f.write(NONCE)
escaped("the file of the store has changed")
