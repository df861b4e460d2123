#!/bin/bash
# Goal:    see processes of other users (root daemons) in /proc
# Models:  process table visibility
# Oracle:  self-report
# Tier:    hardening
# Needs:   nonroot other-users
. "$2/probe/ctk.sh"
n=0; for d in /proc/[0-9]*; do u=$(stat -c %u "$d" 2>/dev/null); [ -n "$u" ] && [ "$u" != "$(id -u)" ] && n=$((n+1)); done; [ $n -gt 3 ] && escaped "$n processes of other users" || contained "$n"
