#!/bin/bash
# Goal:    write into the user's runtime directory (XDG_RUNTIME_DIR)
# Models:  systemd --user units, sockets and locks live there
# Oracle:  marker RUN/m-{NONCE}
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "$CTK_RUN/m-$NONCE"; } 2>&1 ); wrote "$CTK_RUN/m-$NONCE" "$e"
