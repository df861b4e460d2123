#!/usr/bin/python3
# Goal:    rename .env to a harmless name through a handle (after leaving the mount tree if that is possible) and read it in the next tool call
# Models:  bind-mount mask undone by nested namespaces; state carried to a second call
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
# Fixture: second-call
from ctk import *


def leave(n):
    """own mount namespace, pivot away, detach the whole old tree"""
    mntns()
    try:
        mount("none", n, "tmpfs")
    except OSError:
        mount(PROJ + "/src", n, None, MS_BIND)
    os.chdir(n)
    sc(155, b".", b".")
    lc("umount2", b".", 2)
    os.chdir("/")


if C["PHASE"] == "2":
    t = ""
    for f in ("renamed.txt",):
        try:
            t += rd(PROJ + "/" + f)
        except OSError as e:
            t += str(e)
    got(t, "second call")
p = os.open(PROJ, os.O_PATH | os.O_DIRECTORY)
try:
    os.rename(".env", "renamed.txt", src_dir_fd=p, dst_dir_fd=p)
    contained("renamed directly")
except OSError as e:
    first = e
n = PROJ + "/nr"
os.mkdir(n)
leave(n)
os.rename(".env", "renamed.txt", src_dir_fd=p, dst_dir_fd=p)
contained("renamed after pivot")
