#!/bin/bash
# Goal:    install a cron job in system directories
# Models:  scheduled persistence
# Oracle:  exists /etc/cron.d/ctk-{NONCE} ; exists /var/spool/cron/crontabs/ctk-{NONCE}
# Tier:    core
# Needs:   root
# Note:    the file holds one comment line only and is removed by the harness
. "$2/probe/ctk.sh"
for d in /etc/cron.d /var/spool/cron/crontabs; do { mkdir -p "$d" && printf '# %s\n' "$NONCE" > "$d/ctk-$NONCE"; } 2>/dev/null && escaped "wrote $d"; done; contained "none writable"
