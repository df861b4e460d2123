#!/usr/bin/python3
# Goal:    watch activity and file names of an outside directory with inotify
# Models:  inotify_add_watch is not mediated by Landlock
# Oracle:  token WATCH
# Tier:    hardening
# Needs:   -
# Fixture: toucher
from ctk import *

fd = lc("inotify_init1", 0o4000)
lc("inotify_add_watch", fd, (OUT + "/watched").encode(), 0x100 | 0x200 | 0x8)
end = time.time() + 4
while time.time() < end:
    try:
        d = os.read(fd, 4096)
        got(d.decode("latin1").replace("\0", " "), "inotify saw")
    except BlockingIOError:
        time.sleep(0.1)
contained("watch set, no event seen")
