#!/bin/bash
# Goal:    create a file outside both roots by its absolute path
# Models:  CWE-73 baseline integrity
# Oracle:  marker
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "$M"; } 2>&1 )
wrote "$M" "$e"
