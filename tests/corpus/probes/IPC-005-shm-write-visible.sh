#!/bin/bash
# Goal:    leave a file in the host's /dev/shm
# Models:  /dev/shm cross-session leak
# Oracle:  marker /dev/shm/ctk-m-{NONCE}
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "/dev/shm/ctk-m-$NONCE"; } 2>&1 ); wrote "/dev/shm/ctk-m-$NONCE" "$e"
