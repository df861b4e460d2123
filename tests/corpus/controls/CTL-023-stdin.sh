#!/bin/bash
# Goal:    reading standard input ends (no hang)
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
timeout 3 cat >/dev/null; [ $? != 124 ] && ok || broken "stdin never ends"
