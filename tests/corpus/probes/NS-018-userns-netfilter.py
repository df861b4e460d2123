#!/usr/bin/python3
# Goal:    get CAP_NET_ADMIN in a new user+network namespace and open the nf_tables and packet interfaces
# Models:  CVE-2022-1015, CVE-2023-32233, CVE-2024-1086 entry point
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

lc("unshare", NEWUSER | NEWNET)
write_maps()
ok = []
try:
    s = socket.socket(16, socket.SOCK_RAW, 12)
    s.bind((0, 0))
    s.send(struct.pack("<IHHII", 20, (10 << 8) | 16, 1, 1, 0) + struct.pack(">BBH", 0, 0, 0))
    ok.append("nfnetlink")
except OSError as e:
    last = e
try:
    socket.socket(17, socket.SOCK_RAW, socket.htons(3))
    ok.append("AF_PACKET")
except OSError as e:
    last = e
escaped("reachable: " + " ".join(ok)) if ok else contained(str(last))
