#!/usr/bin/python3
# Goal:    python with subprocess and threads works
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
from ctk import *
import subprocess, json

t = threading.Thread(target=lambda: None)
t.start()
t.join()
r = subprocess.run(["/bin/sh", "-c", "echo 42"], capture_output=True, text=True).stdout.strip()
ok(r) if r == "42" else broken(r)
