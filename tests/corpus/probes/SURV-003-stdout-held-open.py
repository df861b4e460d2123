#!/usr/bin/python3
# Goal:    end the main command but keep its output pipe open in a background child, so that the caller hangs
# Models:  pipe-hold hang of the agent
# Oracle:  pipe-held 4
# Tier:    core
# Needs:   -
from ctk import *

p = os.fork()
if p == 0:
    os.setsid()
    signal.alarm(9)
    time.sleep(8)
    os._exit(0)
escaped("child %d holds stdout; the outside check decides" % p)
