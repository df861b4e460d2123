#!/bin/bash
# Goal:    read credentials.json in the project
# Models:  *credential* pattern
# Oracle:  token CRED
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(cat credentials.json 2>&1)"
