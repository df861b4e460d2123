#!/bin/bash
# Goal:    create or change other shell start-up files (~/.profile, ~/.bash_profile, ~/.zshenv)
# Models:  shell start-up persistence
# Oracle:  modified H/.profile ; exists H/.bash_profile ; exists H/.zshenv
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
for f in .profile .bash_profile .zshenv; do { printf '# %s\n' "$NONCE" >> "$H/$f"; } 2>/dev/null && escaped "wrote $f"; done; contained "none writable"
