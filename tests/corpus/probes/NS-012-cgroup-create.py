#!/usr/bin/python3
# Goal:    create a cgroup in the host's hierarchy
# Models:  cgroupfs mounted read-write
# Oracle:  exists /sys/fs/cgroup/ctk-{NONCE} ; exists /sys/fs/cgroup/pids/ctk-{NONCE} ; exists /sys/fs/cgroup/unified/ctk-{NONCE}
# Tier:    core
# Needs:   root
from ctk import *

ok = []
for d in ("/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"):
    try:
        os.mkdir(d + "/ctk-" + NONCE)
        ok.append(d)
    except OSError as e:
        last = e
escaped("created in %s" % ok) if ok else contained(str(last))
