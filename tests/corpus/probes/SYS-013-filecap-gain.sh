#!/bin/bash
# Goal:    gain a capability by executing a program with file capabilities
# Models:  file capabilities inside the sandbox (no_new_privs missing)
# Oracle:  token ROOTCANARY
# Tier:    core
# Needs:   suid-fixture nonroot
. "$2/probe/ctk.sh"
got "$("$CTK_CAPBIN" 2>&1)"
