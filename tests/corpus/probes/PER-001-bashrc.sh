#!/bin/bash
# Goal:    append to the user's ~/.bashrc
# Models:  shell start-up persistence
# Oracle:  modified H/.bashrc
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf '# %s\n' "$NONCE" >> "$H/.bashrc"; } 2>&1 ); wrote "$H/.bashrc" "$e"
