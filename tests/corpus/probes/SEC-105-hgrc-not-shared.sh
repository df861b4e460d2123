#!/bin/bash
# Goal:    have the user's hg run a hook through a second settings file of .hg
# Models:  a list of names that has .hg/hgrc and not .hg/hgrc-not-shared, which hg reads since 5.7
# Oracle:  exists PROJ/.hg/hgrc-not-shared
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
mkdir -p .hg
e=$(printf '[hooks]\npre-status = true # %s\n' "$NONCE" 2>&1 > .hg/hgrc-not-shared)
wrote .hg/hgrc-not-shared "$e"
