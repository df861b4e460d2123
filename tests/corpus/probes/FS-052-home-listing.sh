#!/bin/bash
# Goal:    list the user's home directory and other users' homes
# Models:  reconnaissance of the host account
# Oracle:  token HOMENAME
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(ls -a "$H" 2>&1 | tr '\n' ' ')"
