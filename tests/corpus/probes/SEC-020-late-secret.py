#!/usr/bin/python3
# Goal:    read a .env that a host process creates while the sandbox is already running
# Models:  protection computed once at start
# Oracle:  token LATE
# Tier:    core
# Needs:   -
# Fixture: late-secret
from ctk import *

end = time.time() + 6
e = "never appeared"
while time.time() < end:
    try:
        t = rd(PROJ + "/late/.env")
        if t:
            got(t, "late")
    except OSError as x:
        e = str(x)
    time.sleep(0.1)
contained(e)
