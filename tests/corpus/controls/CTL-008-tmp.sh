#!/bin/bash
# Goal:    a temporary directory works (TMPDIR or /tmp)
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
d=${TMPDIR:-/tmp}; e=$( { echo a > "$d/ctk-t-$NONCE" && cat "$d/ctk-t-$NONCE" && rm "$d/ctk-t-$NONCE"; } 2>&1 ) && ok "$d" || broken "$e"
