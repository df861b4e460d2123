#!/bin/bash
# Goal:    write outside through a symlink planted in the central storage root
# Models:  CVE-2025-53109 on the second root
# Oracle:  marker
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
ln -s "$OUT" "$CENTRAL/cache-link" 2>/dev/null || contained "central root not writable"
e=$( { printf %s "$NONCE" > "$CENTRAL/cache-link/m-$NONCE"; } 2>&1 )
wrote "$M" "$e"
