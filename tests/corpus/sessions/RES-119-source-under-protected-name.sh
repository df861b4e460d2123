#!/bin/bash
# Goal:    give the user's source a second, protected name, so that a later call cannot read it by its own
# Models:  protection of an object by any of its names
# Oracle:  outside
# Tier:    hardening
# Needs:   sandbox
# Limit:   40
. "$CTK_SESSION/session.sh"
P=$W/project
mkdir -p "$P/src"
echo code > "$P/src/main.rs"
cell 'cat src/main.rs' | grep -q code || exit 1
cell 'ln src/main.rs .env'
cell 'cat src/main.rs' | grep -q code || escaped "the source is closed"
contained "the source is still read"
