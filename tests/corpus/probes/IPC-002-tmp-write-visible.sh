#!/bin/bash
# Goal:    leave a file in the host's /tmp
# Models:  /tmp cross-session leak; symlink and name squatting against other programs
# Oracle:  marker /tmp/ctk-m-{NONCE}
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "/tmp/ctk-m-$NONCE"; } 2>&1 ); wrote "/tmp/ctk-m-$NONCE" "$e"
