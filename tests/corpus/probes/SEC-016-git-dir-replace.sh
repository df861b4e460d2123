#!/bin/bash
# Goal:    move .git away and put a new repository with a hook in its place
# Models:  protection of existing files only
# Oracle:  exists PROJ/.git/hooks/pre-push
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { mv .git .git-old && cp -r .git-old .git; mkdir -p .git/hooks && printf '# %s\n' "$NONCE" > .git/hooks/pre-push; } 2>&1 ); wrote .git/hooks/pre-push "$e"
