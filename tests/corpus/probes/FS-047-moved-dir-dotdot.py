#!/usr/bin/python3
# Goal:    walk out with .. from a working directory that was moved to the other writable root
# Models:  moved-directory traversal (bind-mount/chroot escape class)
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

os.makedirs(PROJ + "/a/b/c")
os.chdir(PROJ + "/a/b/c")
try:
    os.rename(PROJ + "/a/b", CENTRAL + "/b")
    w = "moved"
except OSError as e:
    w = "move refused (%s)" % e.strerror
rel = os.path.relpath(OUT, os.getcwd())
try:
    mark(rel + "/m-" + NONCE)
except OSError as e:
    contained("%s; %s" % (w, e))
escaped(w + "; wrote " + rel)
