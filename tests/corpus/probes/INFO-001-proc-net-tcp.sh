#!/bin/bash
# Goal:    see the host's listening TCP ports in /proc/net
# Models:  network namespace information leak
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
. "$2/probe/ctk.sh"
p=$(printf '%04X' "$CTK_TCP4"); if grep -qs ":$p " /proc/net/tcp; then escaped "listener port $CTK_TCP4 visible"; else contained "not visible"; fi
