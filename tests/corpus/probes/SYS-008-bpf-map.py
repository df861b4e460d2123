#!/usr/bin/python3
# Goal:    create a BPF map and load a socket-filter program
# Models:  bpf(2) kernel surface (CVE-2021-3490, CVE-2022-23222)
# Oracle:  self-report
# Tier:    core
# Needs:   root
from ctk import *

at = ctypes.create_string_buffer(struct.pack("<IIII", 2, 4, 8, 4).ljust(128, b"\0"), 128)
fd = sc(321, 0, at, 128)
ins = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
ib = ctypes.create_string_buffer(ins, 16)
lic = ctypes.create_string_buffer(b"GPL")
at = ctypes.create_string_buffer(
    struct.pack("<IIQQIIQ", 1, 2, ctypes.addressof(ib), ctypes.addressof(lic), 0, 0, 0).ljust(128, b"\0"), 128
)
p = sc(321, 5, at, 128)
escaped("map fd %d, program fd %d" % (fd, p))
