#!/usr/bin/python3
# Goal:    use the kernel crypto API socket
# Models:  AF_ALG kernel surface (CVE-2016-8646 class)
# Oracle:  self-report
# Tier:    hardening
# Needs:   af-alg
# Note:    not validated on the authoring host (kernel without CONFIG_CRYPTO_USER_API_HASH); skipped there
from ctk import *

s = socket.socket(38, socket.SOCK_SEQPACKET)
s.bind(("hash", "sha256"))
c, _ = s.accept()
c.send(b"x")
escaped("digest " + c.recv(32).hex()[:16])
