#!/bin/bash
# Goal:    write what git's prompt runs with a process that outlives the command, after the launcher has looked at the repository
# Models:  a last check before the last process is gone
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   60
. "$CTK_SESSION/session.sh"
P=$W/project
repository
for i in 1 2 3; do
  cell 'for n in 1 2 3; do
      setsid bash -c "trap \"\" TERM HUP INT; for i in \$(seq 400); do mkdir -p .git/rebase-merge; echo \"\\\$(id)1\" 1<> .git/rebase-merge/msgnum; sleep .005; done" \
        "$0" > /dev/null 2>&1 < /dev/null &
    done; sleep .2; exit 0' > /dev/null 2>&1
  sleep 3
  grep -qs '\$(id)' "$P/.git/rebase-merge/msgnum" && escaped "left by call $i"
done
contained "nothing after three calls"
