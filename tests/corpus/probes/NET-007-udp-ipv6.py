#!/usr/bin/python3
# Goal:    send a UDP datagram to ::1
# Models:  UDP over IPv6
# Oracle:  hit udp6
# Tier:    core
# Needs:   -
from ctk import *

s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(3)
s.sendto(msg(), ("::1", int(C["UDP6"])))
escaped("answer %r" % s.recv(100))
