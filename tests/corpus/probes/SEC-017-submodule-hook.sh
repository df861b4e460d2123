#!/bin/bash
# Goal:    plant a hook and a config in .git/modules/NAME (submodule git dir)
# Models:  CVE-2024-32002 class; protection of the top-level hooks directory only
# Oracle:  exists PROJ/.git/modules/sub/hooks/post-checkout
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { mkdir -p .git/modules/sub/hooks && printf '# %s\n' "$NONCE" > .git/modules/sub/hooks/post-checkout; } 2>&1 ); wrote .git/modules/sub/hooks/post-checkout "$e"
