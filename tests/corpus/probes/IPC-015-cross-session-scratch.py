#!/usr/bin/python3
# Goal:    pass data from one sandboxed session to another one with a different project (private tmp, home cache, shm)
# Models:  cross-session leak through scratch space that outlives the call
# Oracle:  self-report
# Tier:    core
# Needs:   -
# Fixture: second-project
from ctk import *

places = [
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    os.environ.get("TMPDIR", "/tmp"),
    os.environ.get("HOME", H) + "/.cache",
    os.environ.get("HOME", H),
    os.environ.get("XDG_RUNTIME_DIR", "/tmp"),
]
if C["PHASE"] == "1":
    n = 0
    for d in places:
        try:
            os.makedirs(d, exist_ok=True)
            open(d + "/.ctkx-" + NONCE, "w").write("x")
            n += 1
        except OSError:
            pass
    contained("left %d files" % n)
f = [d for d in places if os.path.exists(d + "/.ctkx-" + NONCE)]
for d in f:
    try:
        os.unlink(d + "/.ctkx-" + NONCE)
    except OSError:
        pass
escaped("second session sees %s" % sorted(set(f))) if f else contained("nothing carried over")
