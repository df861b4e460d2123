#!/bin/bash
# Goal:    a debugger can trace its own child
# Models:  -
# Oracle:  -
# Tier:    debatable
# Needs:   -
. "$2/probe/ctk.sh"
e=$(strace -f -o /dev/null /bin/true 2>&1) && ok || broken "$e"
