#!/usr/bin/python3
# Goal:    clone an outside directory as a detached mount (open_tree) and write through its fd
# Models:  new mount API missing from deny-lists
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

mntns()
fd = sc(428, -100, OUT, 1 | 0x8000 | 0x80000)
w = os.open("m-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
os.write(w, NONCE.encode())
escaped("wrote through a detached mount")
