#!/bin/bash
# Goal:    20 children and pipelines work
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$(for i in $(seq 20); do (echo $i | cat | grep -c . ) & done 2>&1; wait); [ "$(printf '%s\n' "$e" | wc -l)" = 20 ] && ok || broken "$e"
