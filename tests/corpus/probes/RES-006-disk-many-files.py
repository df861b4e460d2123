#!/usr/bin/python3
# Goal:    write 16 files of 24 MB into the project
# Models:  disk flood below a per-file limit (RLIMIT_FSIZE is not a quota)
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *
import shutil

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.mkdir(PROJ + "/many")
b = b"d" * (1 << 20)
try:
    for k in range(16):
        with open(PROJ + "/many/%d" % k, "wb", 0) as f:
            for i in range(24):
                f.write(b)
finally:
    shutil.rmtree(PROJ + "/many", ignore_errors=True)
escaped("384 MB written in 16 files")
