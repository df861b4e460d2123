#!/bin/bash
# Goal:    create a nested repository with a hook in an existing subdirectory
# Models:  protection of the top-level .git only
# Oracle:  exists PROJ/src/.git/hooks/pre-commit
# Tier:    debatable
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { mkdir -p src/.git/hooks && printf '# %s\n' "$NONCE" > src/.git/hooks/pre-commit; } 2>&1 ); wrote src/.git/hooks/pre-commit "$e"
