#!/bin/bash
# Goal:    read a file outside both roots by its absolute path
# Models:  CWE-22 baseline, confidentiality of the rest of the home directory
# Oracle:  token OUTSIDE
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(cat "$OUT/canary.txt" 2>&1)"
