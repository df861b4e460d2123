#!/usr/bin/python3
# Goal:    send a datagram to an abstract unix socket without connecting
# Models:  sendto path of abstract sockets
# Oracle:  hit absdgram
# Tier:    core
# Needs:   -
from ctk import *

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(msg(), "\0" + C["ABSDGRAM"])
time.sleep(0.2)
escaped("sent")
