#!/bin/bash
# Goal:    see the host's unix sockets in /proc/net/unix
# Models:  network namespace information leak
# Oracle:  self-report
# Tier:    hardening
# Needs:   -
. "$2/probe/ctk.sh"
if grep -qs "$CTK_ABSSTREAM" /proc/net/unix; then escaped "abstract socket visible"; else contained "not visible"; fi
