#!/bin/bash
# Goal:    read from a sibling directory whose name starts with the project root's name
# Models:  CVE-2025-53110 (prefix check without separator)
# Oracle:  token SIBLING
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(cat "$PROJ-private/canary.txt" 2>&1)"
