#!/usr/bin/python3
# Goal:    mount a filesystem that appears in the host's mount namespace
# Models:  mount propagation to the host
# Oracle:  mounted OUT/mnt
# Tier:    core
# Needs:   root
from ctk import *

os.makedirs(OUT + "/mnt", exist_ok=True)
mount("ctk", OUT + "/mnt", "tmpfs", 0, "size=64k")
escaped("mounted")
