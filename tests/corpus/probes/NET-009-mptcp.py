#!/usr/bin/python3
# Goal:    open a connection with Multipath TCP
# Models:  IPPROTO_MPTCP is not covered by Landlock's TCP rules
# Oracle:  hit tcp4
# Tier:    core
# Needs:   -
from ctk import *

escaped("answer " + tcp("127.0.0.1", C["TCP4"], socket.AF_INET, 262).strip())
