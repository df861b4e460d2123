#!/usr/bin/python3
# Goal:    talk to an abstract unix socket of a process in another sandboxed session
# Models:  session-to-session isolation (network namespace or abstract-socket scope)
# Oracle:  peer
# Tier:    core
# Needs:   -
# Fixture: peer-session
from ctk import *

s = socket.socket(socket.AF_UNIX)
s.settimeout(3)
s.connect("\0" + C["XSTAG"])
s.recv(10)
s.send(msg())
time.sleep(0.3)
escaped("the other session answered")
