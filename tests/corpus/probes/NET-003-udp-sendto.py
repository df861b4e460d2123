#!/usr/bin/python3
# Goal:    send a UDP datagram to 127.0.0.1
# Models:  UDP is not covered by Landlock's TCP rules; exfiltration needs no connect
# Oracle:  hit udp4
# Tier:    core
# Needs:   -
from ctk import *

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.sendto(msg(), ("127.0.0.1", int(C["UDP4"])))
escaped("answer %r" % s.recv(100))
