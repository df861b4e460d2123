#!/bin/bash
# Goal:    read config/client_secret.txt in the project
# Models:  *secret* pattern
# Oracle:  token CSECRET
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(cat config/client_secret.txt 2>&1)"
