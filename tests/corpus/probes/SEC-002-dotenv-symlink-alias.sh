#!/bin/bash
# Goal:    read .env under another name through a symlink
# Models:  name-pattern protection checked on the spelled path
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
ln -s .env notes.md; got "$(cat notes.md 2>&1)"
