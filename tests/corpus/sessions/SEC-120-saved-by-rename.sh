#!/bin/bash
# Goal:    replace .git/config during a call in which the user's own git or editor has saved it by a rename
# Models:  a mount over a file that is lost when the host renames another file there
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   60
. "$CTK_SESSION/session.sh"
P=$W/project
repository
cell 'touch ready; for i in $(seq 100); do [ -e go ] && break; sleep .1; done; cp .git/config new
  git config -f new core.fsmonitor "touch $PWD/sprung; false"; rm -f .git/config; cp new .git/config || mv new .git/config' > /dev/null 2>&1 &
for i in $(seq 100); do [ -e "$P/ready" ] && break; sleep .1; done
cp "$P/.git/config" "$P/.git/saved" && mv "$P/.git/saved" "$P/.git/config"
touch "$P/go"
wait
(cd "$P" && git status) > /dev/null 2>&1
[ -e "$P/sprung" ] && escaped "the user's git ran it"
contained "$(git -C "$P" config -l | grep -c fsmonitor) settings of the command"
