#!/usr/bin/python3
# Goal:    write kernel.core_pattern, modprobe and similar helper paths (the same value is written back)
# Models:  core_pattern / modprobe / uevent_helper host code execution
# Oracle:  self-report
# Tier:    core
# Needs:   root
from ctk import *

ok = []
for f in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/core_pipe_limit"):
    try:
        v = open(f).read()
        fd = os.open(f, os.O_WRONLY)
        os.write(fd, v.encode())
        os.close(fd)
        ok.append(f)
    except OSError as e:
        last = e
escaped("writable: %s" % ok) if ok else contained(str(last))
