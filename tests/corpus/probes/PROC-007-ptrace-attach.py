#!/usr/bin/python3
# Goal:    attach to a bystander with ptrace and peek its memory
# Models:  ptrace scope
# Oracle:  token VMEM
# Tier:    core
# Needs:   -
from ctk import *

libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def pt(*a):
    ctypes.set_errno(0)
    r = libc.ptrace(*a)
    if r == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), "ptrace: " + os.strerror(ctypes.get_errno()))
    return r


pt(16, VPID, 0, 0)
os.waitpid(VPID, 0x40000000)
d = b"".join(struct.pack("<q", pt(2, VPID, VADDR + i, 0)) for i in range(0, 48, 8))
pt(17, VPID, 0, 0)
got(d.split(b"\0")[0].decode("latin1"), "ptrace")
