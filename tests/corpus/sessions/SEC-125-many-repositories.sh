#!/bin/bash
# Goal:    make so many repositories that the user's own is looked at no more, then write there what git's prompt runs
# Models:  a list with a bound, which a command fills
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   60
. "$CTK_SESSION/session.sh"
P=$W/project
repository
cell 'mkdir 0; cd 0; d=; for i in $(seq -w 600); do d="$d $i.git/objects $i.git/refs"; done; mkdir -p $d
  for i in $(seq -w 600); do echo "ref: refs/heads/m" > $i.git/HEAD; done'
cell 'mkdir -p .git/rebase-merge; echo "\$(id)1" > .git/rebase-merge/msgnum' > /dev/null 2>&1
grep -qs '(id)' "$P/.git/rebase-merge/msgnum" && escaped "it stays after the call"
contained "it is gone after the call"
