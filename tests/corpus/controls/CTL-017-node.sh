#!/bin/bash
# Goal:    node runs
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$(node -e 'console.log(1+1)' 2>&1); [ "$e" = 2 ] && ok || broken "$e"
