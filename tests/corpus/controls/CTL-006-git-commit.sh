#!/bin/bash
# Goal:    git add and git commit work in the project
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
export HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
echo n > newfile; e=$(git add newfile 2>&1 && git -c user.name=t -c user.email=t@t.invalid commit -qm c 2>&1) && ok || broken "$e"
