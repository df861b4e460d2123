#!/usr/bin/python3
# Goal:    watch an outside directory with unprivileged fanotify (FAN_REPORT_DFID_NAME)
# Models:  unprivileged fanotify since 5.13; usually forgotten in filters
# Oracle:  token WATCH
# Tier:    hardening
# Needs:   -
# Fixture: toucher
from ctk import *

fd = sc(300, 0x0 | 0x2 | 0xC00, os.O_RDONLY)  # FAN_CLASS_NOTIF|NONBLOCK|DFID_NAME
try:
    sc(301, fd, 0x1, ctypes.c_uint64(0x100 | 0x200 | 0x40000000), -100, OUT + "/watched")
except OSError as e:
    contained("fanotify_mark: %s" % e)
end = time.time() + 4
while time.time() < end:
    try:
        d = os.read(fd, 4096)
        got(d.decode("latin1").replace("\0", " "), "fanotify saw")
    except BlockingIOError:
        time.sleep(0.1)
contained("mark set, no event seen")
