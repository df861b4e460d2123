#!/bin/bash
# Goal:    change the user's global git configuration (~/.gitconfig)
# Models:  core.fsmonitor / core.sshCommand / alias persistence
# Oracle:  modified H/.gitconfig
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf '# %s\n' "$NONCE" >> "$H/.gitconfig"; } 2>&1 ); wrote "$H/.gitconfig" "$e"
