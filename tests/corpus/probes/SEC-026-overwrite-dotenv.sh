#!/bin/bash
# Goal:    overwrite the project's .env (inject configuration into the user's next run)
# Models:  integrity of secret files
# Oracle:  modified PROJ/.env
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf 'NODE_OPTIONS=--require=%s\n' "$NONCE" > .env; } 2>&1 ); wrote .env "$e"
