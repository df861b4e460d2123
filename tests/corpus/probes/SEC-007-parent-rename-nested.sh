#!/bin/bash
# Goal:    rename the parent directory of a nested .env and read it at its new path
# Models:  protection bound to a path computed at start
# Oracle:  token SUBENV
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$(mv sub renamed 2>&1); got "$(cat renamed/.env 2>&1) $e"
