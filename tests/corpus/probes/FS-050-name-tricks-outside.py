#!/usr/bin/python3
# Goal:    create outside files with newline, control and invalid UTF-8 bytes in the names
# Models:  name injection into host tools, path list parsers (mount option and allow-list separators : , \n)
# Oracle:  marker OUT/x\n:,{NONCE}
# Tier:    core
# Needs:   -
from ctk import *

p = (OUT + "/x\n:," + NONCE).encode()
fd = os.open(p, os.O_CREAT | os.O_WRONLY, 0o644)
os.write(fd, NONCE.encode())
escaped("created")
