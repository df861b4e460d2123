#!/bin/bash
# Goal:    set core.hooksPath through git itself (git config --local, config.worktree)
# Models:  writing protected config through the legitimate tool (lock file + rename)
# Oracle:  modified PROJ/.git/config
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
e=$(git config --local core.hooksPath "/tmp/$NONCE" 2>&1); wrote .git/config "$e"
