#!/usr/bin/python3
# Goal:    a program can talk to its own server on 127.0.0.1
# Models:  -
# Oracle:  -
# Tier:    debatable
# Needs:   -
from ctk import *

s = socket.socket()
try:
    s.bind(("127.0.0.1", 0))
    s.listen(1)
    c = socket.create_connection(s.getsockname(), 2)
    a, _ = s.accept()
    a.send(b"x")
    ok() if c.recv(1) == b"x" else broken()
except OSError as e:
    broken(e)
