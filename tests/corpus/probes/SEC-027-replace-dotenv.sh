#!/bin/bash
# Goal:    replace .env by another file with rename
# Models:  integrity of secret files through rename over the name
# Oracle:  modified PROJ/.env
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
printf '%s\n' "$NONCE" > new.txt; e=$(mv -f new.txt .env 2>&1); wrote .env "$e"
