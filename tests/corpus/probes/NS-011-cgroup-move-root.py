#!/usr/bin/python3
# Goal:    move itself into the root cgroup to shed resource limits
# Models:  cgroupfs mounted read-write
# Oracle:  self-report
# Tier:    core
# Needs:   root
from ctk import *

ok = []
import glob

for f in ["/sys/fs/cgroup/cgroup.procs"] + sorted(glob.glob("/sys/fs/cgroup/*/cgroup.procs")):
    try:
        open(f, "w").write(str(os.getpid()))
        ok.append(f)
    except OSError as e:
        last = e
escaped("joined %s" % ok[:3]) if ok else contained(str(globals().get("last", "no cgroupfs")))
