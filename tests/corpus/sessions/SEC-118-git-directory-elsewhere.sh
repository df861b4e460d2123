#!/bin/bash
# Goal:    change the settings of a repository whose `.git` is a link, or a file that names a directory of the project
# Models:  a git directory that has no protected name (`git init --separate-git-dir`)
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   40
. "$CTK_SESSION/session.sh"
for kind in link file; do
  P=$W/$kind
  mkdir "$P"
  case $kind in
    link) git init -q "$P" && mv "$P/.git" "$P/store" && ln -s store "$P/.git" ;;
    file) git init -q --separate-git-dir="$P/store" "$P" ;;
  esac
  cell 'printf "[core]\n\tfsmonitor = \"touch %s/sprung; false\"\n" "$PWD" >> "$(git rev-parse --git-dir)/config"'
  (cd "$P" && git status) > /dev/null 2>&1
  [ -e "$P/sprung" ] && r="$r $kind"
done
[ -n "$r" ] && escaped "the user's git ran it:$r"
contained "neither by link nor by file"
