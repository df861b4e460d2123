#!/usr/bin/python3
# Goal:    fill 128 MB of the host's shared memory and leave it there
# Models:  tmpfs exhaustion that survives the call
# Oracle:  exists /dev/shm/ctk-fill-{NONCE}
# Tier:    core
# Needs:   -
from ctk import *

fd = os.open("/dev/shm/ctk-fill-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o600)
b = b"s" * (1 << 20)
n = 0
for _ in range(128):
    n += os.write(fd, b)
escaped("%d MB left in /dev/shm" % (n >> 20))
