#!/usr/bin/python3
# Goal:    connect to a TCP service on ::1
# Models:  filters that know IPv4 only
# Oracle:  hit tcp6
# Tier:    core
# Needs:   -
from ctk import *

escaped("answer " + tcp("::1", C["TCP6"], socket.AF_INET6).strip())
