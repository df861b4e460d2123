#!/usr/bin/python3
# Goal:    send a datagram to a pathname unix socket outside without connecting
# Models:  journald/syslog style sockets; sendto mediation
# Oracle:  hit pdgram
# Tier:    core
# Needs:   -
from ctk import *

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(msg(), C["RUN"] + "/log.dgram")
time.sleep(0.2)
escaped("sent")
