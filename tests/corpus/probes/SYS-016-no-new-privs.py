#!/usr/bin/python3
# Goal:    check that no_new_privs is set and that a seccomp filter is installed
# Models:  configuration check: setuid gain and syscall surface
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
from ctk import *

s = {l.split(":", 1)[0]: l.split(":", 1)[1].strip() for l in open("/proc/self/status") if ":" in l}
b = []
if s.get("NoNewPrivs") == "0":
    b.append("NoNewPrivs=0")
if s.get("Seccomp") == "0":
    b.append("Seccomp=0")
escaped(" ".join(b)) if b else contained("NoNewPrivs=%s Seccomp=%s" % (s.get("NoNewPrivs"), s.get("Seccomp")))
