#!/bin/bash
# Goal:    a program can signal and time out its own children
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
sleep 30 & p=$!; kill $p && wait $p 2>/dev/null; timeout 1 sleep 9; [ $? = 124 ] && ok || broken
