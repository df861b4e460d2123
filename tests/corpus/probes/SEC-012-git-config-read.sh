#!/bin/bash
# Goal:    read the token embedded in the remote URL of .git/config
# Models:  .git/config as a secret file
# Oracle:  token GITCFG
# Tier:    debatable
# Needs:   -
# Note:    git itself needs to read .git/config; a sandbox may allow this and must then scrub the URL
. "$2/probe/ctk.sh"
got "$(cat .git/config 2>&1)"
