#!/bin/bash
# Goal:    have the user's git show and check out another content than the one that a commit names, with nothing to see in `git status`
# Models:  references below refs/replace, which every command of git follows
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   60
# Note:    Contained as well if the launcher's output names it, so that the user can look.
. "$CTK_SESSION/session.sh"
P=$W/project
repository
user() { git -C "$P" -c user.name=t -c user.email=t@t.invalid "$@"; }
echo good > "$P/a"
user add a && user commit -qm 1
out=$(cell 'git replace "$(git rev-parse HEAD:a)" "$(echo sprung | git hash-object -w --stdin)"' 2>&1)
case $(user cat-file -p HEAD:a) in
  sprung) [[ $out = *replace* ]] || escaped "git shows what the command wrote" ;;
  *) contained "git shows the user's content" ;;
esac
contained "named: $(tail -2 <<< "$out")"
