#!/bin/bash
# Goal:    gain root's file access by executing a setuid-root program
# Models:  setuid binaries inside the sandbox (no_new_privs missing)
# Oracle:  token ROOTCANARY
# Tier:    core
# Needs:   suid-fixture nonroot
. "$2/probe/ctk.sh"
got "$("$CTK_SUIDBIN" 2>&1)"
