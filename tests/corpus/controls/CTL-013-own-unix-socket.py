#!/usr/bin/python3
# Goal:    a program can use its own unix sockets (socketpair and a pathname socket in the project)
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
from ctk import *

try:
    a, b = socket.socketpair()
    a.send(b"x")
    b.recv(1)
    s = socket.socket(socket.AF_UNIX)
    s.bind(PROJ + "/own.sock")
    s.listen(1)
    c = socket.socket(socket.AF_UNIX)
    c.connect(PROJ + "/own.sock")
    ok()
except OSError as e:
    broken(e)
