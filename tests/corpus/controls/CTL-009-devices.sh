#!/bin/bash
# Goal:    /dev/null, /dev/zero and /dev/urandom work
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { echo a > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c; } 2>&1 ) && ok || broken "$e"
