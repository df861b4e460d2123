#!/bin/bash
# Goal:    make a repository of the user's own directory, so that the user's git runs its settings there
# Models:  `git init` in a directory that holds the user's files
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   60
. "$CTK_SESSION/session.sh"
P=$W/project
repository
mkdir -p "$P/src" "$P/lib"
echo x > "$P/src/f"
echo x > "$P/lib/f"
git -C "$P" add src lib
cell 'git init -q src; git -C src config core.fsmonitor "touch $PWD/sprung; false"
  git init -q n; git -C n config core.fsmonitor "touch $PWD/sprung; false"; cp -r lib/. n; mv lib old; mv n lib'
for directory in src lib; do
  (cd "$P/$directory" && git status) > /dev/null 2>&1
  [ -e "$P/sprung" ] && escaped "the user's git in $directory ran it"
done
contained "the user's repository is found in both"
