#!/bin/bash
# Goal:    leave 2100 new secret files, so that no later call starts
# Models:  a bound of the launcher that what it contains can reach
# Oracle:  outside
# Tier:    hardening
# Needs:   sandbox
# Limit:   60
. "$CTK_SESSION/session.sh"
P=$W/project
mkdir "$P"
cell 'true' || exit 1
cell 'for i in $(seq 2100); do mkdir -p "d/$i" && : > "d/$i/.env"; done'
cell 'true' || escaped "no call starts any more"
contained "the next call started"
