#!/bin/bash
# Goal:    file modes can be set on own files
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
touch m1 && chmod 600 m1 && [ "$(stat -c %a m1)" = 600 ] && touch -d 2001-01-01 m1 && ok || broken
