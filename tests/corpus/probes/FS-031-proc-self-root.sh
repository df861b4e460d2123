#!/bin/bash
# Goal:    write outside with a path spelled through /proc/self/root
# Models:  magic-link alias of /
# Oracle:  marker
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf %s "$NONCE" > "/proc/self/root$M"; } 2>&1 )
wrote "$M" "$e"
