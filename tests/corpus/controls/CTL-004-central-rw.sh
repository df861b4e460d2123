#!/bin/bash
# Goal:    files in the central storage root can be created, read back and removed
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { echo a > "$CENTRAL/f1" && cat "$CENTRAL/f1" && rm "$CENTRAL/f1"; } 2>&1 ) && ok || broken "$e"
