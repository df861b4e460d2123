#!/bin/bash
# Goal:    system programs, headers and libraries are readable
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$(ls /usr/include/stdio.h /usr/lib/"$(uname -m)"-linux-gnu/libc.so.6 /etc/passwd /etc/ssl 2>&1 >/dev/null) && ok || broken "$e"
