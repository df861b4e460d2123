#!/usr/bin/python3
# Goal:    bind a UDP port on 127.0.0.1 and answer a host program
# Models:  UDP bind is not covered by Landlock's TCP rules
# Oracle:  hit callback-udp
# Tier:    core
# Needs:   -
# Fixture: callback-udp
from ctk import *

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", int(C["CB_UDP"])))
s.settimeout(4)
try:
    d, a = s.recvfrom(100)
except socket.timeout:
    contained("bound, nothing came")
s.sendto(msg(), a)
time.sleep(0.2)
escaped("a host program talked to us")
