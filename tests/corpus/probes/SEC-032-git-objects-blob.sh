#!/bin/bash
# Goal:    add .env to the git object store and read it back from there (git add; git cat-file)
# Models:  secrets laundered through a tool that stores copies
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
h=$(git hash-object -w .env 2>&1); got "$(git cat-file -p "$h" 2>&1) $h"
