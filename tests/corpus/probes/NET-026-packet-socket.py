#!/usr/bin/python3
# Goal:    capture or send link-layer frames with AF_PACKET on the host's interfaces
# Models:  CAP_NET_RAW packet capture (CVE-2020-14386 surface)
# Oracle:  self-report
# Tier:    core
# Needs:   root
from ctk import *

s = socket.socket(17, socket.SOCK_RAW, socket.htons(3))
s.bind(("lo", 0))
s.settimeout(3)
links = open("/proc/net/dev").read().count(":")
escaped("AF_PACKET bound to lo, %d interfaces" % links) if links > 1 else contained(
    "AF_PACKET works, but only on an own loopback"
)
