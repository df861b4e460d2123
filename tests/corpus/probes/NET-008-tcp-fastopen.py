#!/usr/bin/python3
# Goal:    open a TCP connection without connect(2) (sendto with MSG_FASTOPEN)
# Models:  Landlock / seccomp filters on connect only
# Oracle:  hit tcp4
# Tier:    core
# Needs:   -
from ctk import *

s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 0))
s.sendto(msg(), 0x20000000, ("127.0.0.1", int(C["TCP4"])))
escaped("answer %r" % s.recv(100))
