#!/bin/bash
# Goal:    rename .env to a harmless name and read it
# Models:  name-pattern protection without rename mediation
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$(mv .env notes.md 2>&1); got "$(cat notes.md 2>&1) $e"
