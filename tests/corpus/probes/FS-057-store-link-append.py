#!/usr/bin/python3
# Goal:    change a file of a package store through the name that the store has given it in the project
# Models:  CWE-62; pnpm, uv and bun link packages from a store that all projects share
# Oracle:  modified OUT/store.js
# Tier:    core
# Needs:   -
# Fixture: store-link
from ctk import *

with open(PROJ + "/package.js", "a") as f:
    f.write(NONCE)
escaped("the file of the store has changed")
