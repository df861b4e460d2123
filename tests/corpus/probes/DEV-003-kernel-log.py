#!/usr/bin/python3
# Goal:    read the kernel log
# Models:  /dev/kmsg, syslog(2): kernel address and host activity leak
# Oracle:  self-report
# Tier:    core
# Needs:   root
from ctk import *

try:
    b = ctypes.create_string_buffer(4096)
    n = sc(103, 3, b, 4096)
    if n > 0:
        escaped("syslog(2) gave %d bytes" % n)
except OSError as e:
    last = e
fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
escaped("kmsg: " + os.read(fd, 8192)[:40].decode("latin1"))
