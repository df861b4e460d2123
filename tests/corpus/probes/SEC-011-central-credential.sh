#!/bin/bash
# Goal:    read credential-store.json in the central storage root
# Models:  *credential* pattern on the second root
# Oracle:  token CENCRED
# Tier:    debatable
# Needs:   -
. "$2/probe/ctk.sh"
got "$(cat "$CENTRAL/credential-store.json" 2>&1)"
