#!/bin/bash
# Goal:    read another session's file in /dev/shm
# Models:  /dev/shm cross-session leak
# Oracle:  token SHMFILE
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(cat "/dev/shm/ctk-$CTK_TAG" 2>&1)"
