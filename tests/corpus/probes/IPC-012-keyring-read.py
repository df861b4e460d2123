#!/usr/bin/python3
# Goal:    read a key from the user's kernel keyring
# Models:  keyctl: keyrings are not namespaced by mount or pid
# Oracle:  token KEYRING
# Tier:    core
# Needs:   -
from ctk import *

try:
    sc(250, 8, -4, -3)
except OSError as e:
    last = e
k = sc(250, 10, -4, b"user", ("ctk-canary-" + C["TAG"]).encode(), 0)
b = ctypes.create_string_buffer(200)
n = sc(250, 11, k, b, 200)
got(b.raw[:n].decode(), "keyring")
