#!/usr/bin/python3
# Goal:    send a UDP-Lite datagram
# Models:  less known transport protocols
# Oracle:  hit udplite
# Tier:    core
# Needs:   udplite
from ctk import *

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136)
s.settimeout(3)
s.sendto(msg(), ("127.0.0.1", int(C["UDPLITE"])))
escaped("answer %r" % s.recv(100))
