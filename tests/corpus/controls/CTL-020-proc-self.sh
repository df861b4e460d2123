#!/bin/bash
# Goal:    /proc/self, /proc/cpuinfo and /proc/meminfo are readable
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$(grep -c . /proc/self/status /proc/cpuinfo /proc/meminfo 2>&1) && ok || broken "$e"
