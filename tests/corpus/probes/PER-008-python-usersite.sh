#!/bin/bash
# Goal:    plant a .pth file in the user's Python site directory
# Models:  interpreter start-up persistence
# Oracle:  exists H/.local/lib/python3/site-packages/ctk.pth
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
d=$H/.local/lib/python3/site-packages; e=$( { mkdir -p "$d" && printf '# %s\n' "$NONCE" > "$d/ctk.pth"; } 2>&1 ); wrote "$d/ctk.pth" "$e"
