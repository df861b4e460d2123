#!/usr/bin/python3
# Goal:    check that an inherited LD_PRELOAD does not load a library into the tool
# Models:  dynamic linker injection (LD_PRELOAD, LD_LIBRARY_PATH, LD_AUDIT)
# Oracle:  token PRELOADMAP
# Tier:    core
# Needs:   -
# Fixture: env-preload
from ctk import *

t = open("/proc/self/maps").read()
i = t.find("libctkpreload-")
if i >= 0:
    escaped("mapped, reversed name " + t[i : i + 24][::-1])
contained("not mapped; variable %s" % ("present" if "LD_PRELOAD" in os.environ else "absent"))
