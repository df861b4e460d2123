#!/bin/bash
# Goal:    the exit code of the command reaches the caller
# Models:  -
# Oracle:  exit 7
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
trap - EXIT; printf '\nPROBE %s OK exits 7\n' "$ID"; exit 7
