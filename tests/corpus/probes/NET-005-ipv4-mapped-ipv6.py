#!/usr/bin/python3
# Goal:    reach an IPv4 service through an IPv4-mapped IPv6 address
# Models:  address-family confusion
# Oracle:  hit tcp4
# Tier:    core
# Needs:   -
from ctk import *

escaped("answer " + tcp("::ffff:127.0.0.1", C["TCP4"], socket.AF_INET6).strip())
