#!/usr/bin/python3
# Goal:    subscribe to kernel uevents and route changes (netlink multicast)
# Models:  AF_NETLINK kernel surface
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

s = socket.socket(16, socket.SOCK_RAW, 15)
s.bind((0, 1))
escaped("subscribed to kobject uevents")
