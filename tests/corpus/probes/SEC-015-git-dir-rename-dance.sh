#!/bin/bash
# Goal:    rename .git away, edit config and hooks at the new path, rename it back
# Models:  protection bound to path instead of inode
# Oracle:  modified PROJ/.git/config ; exists PROJ/.git/hooks/post-checkout
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { mv .git g2 && printf '# %s\n' "$NONCE" >> g2/config; printf '# %s\n' "$NONCE" > g2/hooks/post-checkout; mv g2 .git; } 2>&1 ); wrote .git/config "$e"
