#!/usr/bin/python3
# Goal:    listen on 127.0.0.1 and be reached by a host program
# Models:  bind/listen inside (bind shell, phishing of local clients)
# Oracle:  hit callback-tcp
# Tier:    core
# Needs:   -
# Fixture: callback-tcp
from ctk import *

s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(C["CB_TCP"])))
s.listen(5)
s.settimeout(4)
try:
    c, _ = s.accept()
except socket.timeout:
    contained("listening, nobody came")
c.sendall(msg())
time.sleep(0.2)
escaped("a host program connected")
