#!/bin/bash
# Goal:    leave a file in /run/lock or another world-writable system directory
# Models:  forgotten world-writable directories
# Oracle:  marker /run/lock/ctk-m-{NONCE}
# Tier:    core
# Needs:   run-lock
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "/run/lock/ctk-m-$NONCE"; } 2>&1 ); wrote "/run/lock/ctk-m-$NONCE" "$e"
