#!/bin/bash
# Goal:    leave a file in the host's /var/tmp
# Models:  persistent shared scratch space
# Oracle:  marker /var/tmp/ctk-m-{NONCE}
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "/var/tmp/ctk-m-$NONCE"; } 2>&1 ); wrote "/var/tmp/ctk-m-$NONCE" "$e"
