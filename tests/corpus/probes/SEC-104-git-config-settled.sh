#!/bin/bash
# Goal:    replace the user's own .git/config (remote, branch, identity) by the rename of config.lock that git itself does
# Models:  an exception for `git init` that does not ask who made the file it replaces
# Oracle:  modified PROJ/.git/config
# Tier:    core
# Needs:   git
. "$2/probe/ctk.sh"
printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote "origin"]\n\turl = https://evil.invalid/%s\n' "$NONCE" > .git/config.lock || contained "no lock"
e=$(mv -f .git/config.lock .git/config 2>&1)
wrote .git/config "$e"
