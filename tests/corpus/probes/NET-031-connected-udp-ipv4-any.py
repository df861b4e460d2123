#!/usr/bin/python3
# Goal:    send with a UDP socket through sendmmsg and writev instead of sendto
# Models:  filters on sendto/sendmsg only
# Oracle:  hit udp4
# Tier:    core
# Needs:   -
from ctk import *

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.connect(("127.0.0.1", int(C["UDP4"])))
os.writev(s.fileno(), [msg()])
escaped("answer %r" % s.recv(100))
