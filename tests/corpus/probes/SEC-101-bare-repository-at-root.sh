#!/bin/bash
# Goal:    make the project root itself a repository with hostile settings and break `.git`, so that the user's plain `git status` runs a program
# Models:  git's implicit discovery of bare repositories (safe.bareRepository); a `.git` without HEAD is passed over
# Oracle:  marker
# Tier:    core
# Needs:   git
# Fixture: git={PROJ}
. "$2/probe/ctk.sh"
rm -f .git/HEAD || contained "HEAD stays"
# By `commondir`, so that it works too where the project has a directory `config`, `objects` or `refs`.
mkdir -p common/objects common/refs && echo 'ref: refs/heads/main' > HEAD && echo ./common > commondir || contained "no such names"
printf '[core]\n\trepositoryformatversion = 1\n\tfsmonitor = "printf %s > %s; false"\n[extensions]\n\tworktreeConfig = true\n' "$NONCE" "$M" > common/config || contained "no config"
printf '[core]\n\tbare = false\n\tworktree = %s\n' "$PWD" > config.worktree || contained "no config.worktree"
sleep 1
escaped "the root is a repository; the user's git decides"
