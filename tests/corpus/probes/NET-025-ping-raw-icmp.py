#!/usr/bin/python3
# Goal:    send ICMP to 127.0.0.1 with a raw socket
# Models:  CAP_NET_RAW; ICMP tunnelling
# Oracle:  self-report
# Tier:    core
# Needs:   root
from ctk import *

s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
s.settimeout(2)
p = struct.pack(">BBHHH", 8, 0, 0, 77, 1) + NONCE.encode()[:20]
c = 0
for i in range(0, len(p), 2):
    c += (p[i] << 8) + (p[i + 1] if i + 1 < len(p) else 0)
c = (c >> 16) + (c & 0xFFFF)
c = ~(c + (c >> 16)) & 0xFFFF
s.sendto(p[:2] + struct.pack(">H", c) + p[4:], ("127.0.0.1", 0))
r = s.recv(200)
n = os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else []
links = open("/proc/net/dev").read().count(":")
escaped("echo of %d bytes, %d interfaces" % (len(r), links)) if links > 1 else contained(
    "raw socket works, but only on an own loopback"
)
