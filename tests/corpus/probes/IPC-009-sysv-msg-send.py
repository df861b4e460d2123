#!/usr/bin/python3
# Goal:    send a message to a host program's System V queue
# Models:  IPC namespace
# Oracle:  hit sysvmsg
# Tier:    core
# Needs:   -
from ctk import *

q = lc("msgget", int(C["IPCKEY"]), 0)
b = struct.pack("<q", 1) + msg()
lc("msgsnd", q, ctypes.create_string_buffer(b, len(b)), ctypes.c_size_t(len(b) - 8), 0o4000)
time.sleep(0.3)
escaped("sent")
