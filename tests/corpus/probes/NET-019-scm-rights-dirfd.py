#!/usr/bin/python3
# Goal:    receive a directory fd over a unix socket from a host service and write through it
# Models:  SCM_RIGHTS confused deputy
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *
import array

s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.settimeout(3)
try:
    s.connect(C["RUN"] + "/scm.sock")
except OSError:
    s.connect("\0" + C["ABSSCM"])
a = array.array("i")
m, anc, fl, ad = s.recvmsg(10, socket.CMSG_LEN(4))
for lv, ty, d in anc:
    if ty == socket.SCM_RIGHTS:
        a.frombytes(d[:4])
w = os.open("m-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=a[0])
os.write(w, NONCE.encode())
escaped("wrote through a received directory fd")
