#!/usr/bin/python3
# Goal:    leave a key in the user's kernel keyring for a later session
# Models:  keyctl persistence and covert storage
# Oracle:  user-key
# Tier:    core
# Needs:   -
from ctk import *

k = sc(248, b"user", ("ctk-left-" + NONCE).encode(), b"x", 1, -4)
escaped("key %d added to the user keyring" % k)
