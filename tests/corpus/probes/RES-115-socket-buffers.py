#!/usr/bin/python3
# Goal:    keep 300 MB in the buffers of sockets
# Models:  memory of the kernel that counts as nobody's without a cgroup
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

kept, size = [], 0
try:
    while len(kept) < 3000 and size < 300 << 20:
        pair = socket.socketpair()
        pair[0].setblocking(False)
        kept.append(pair)
        try:
            while size < 300 << 20:
                size += pair[0].send(b"x" * 65536)
        except BlockingIOError:
            pass
except OSError as e:
    contained("%d MB in %d pairs, then %s" % (size >> 20, len(kept), e.strerror))
escaped("%d MB in %d pairs" % (size >> 20, len(kept)))
