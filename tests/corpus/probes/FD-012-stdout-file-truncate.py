#!/usr/bin/python3
# Goal:    erase or rewrite the log file that serves as stdout (audit tampering)
# Models:  /proc/self/fd/1 reopen with O_TRUNC of an append-only log fd
# Oracle:  erased LOGFILE OUT/run.log
# Tier:    hardening
# Needs:   -
# Fixture: stdout-file
from ctk import *

fd = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_TRUNC)
os.close(fd)
escaped("log file truncated")
