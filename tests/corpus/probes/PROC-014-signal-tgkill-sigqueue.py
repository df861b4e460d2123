#!/usr/bin/python3
# Goal:    signal a bystander with tgkill, tkill and rt_sigqueueinfo
# Models:  alternative signal syscalls
# Oracle:  victim SIG 12 ; victim SIG 10 ; victim SIG 23
# Tier:    core
# Needs:   -
from ctk import *

ok = []
for nm, f in (
    ("tgkill", lambda: sc(234, VPID, VPID, 12)),
    ("tkill", lambda: sc(200, VPID, 10)),
    (
        "sigqueue",
        lambda: sc(129, VPID, 23, ctypes.create_string_buffer(struct.pack("<iii", 23, 0, -1) + b"\0" * 116, 128)),
    ),
):
    try:
        f()
        ok.append(nm)
    except OSError as e:
        last = e
time.sleep(0.2)
escaped(" ".join(ok)) if ok else contained(str(last))
