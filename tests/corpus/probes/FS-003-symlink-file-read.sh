#!/bin/bash
# Goal:    read an outside file through a symlink planted inside the project
# Models:  CVE-2025-53109 (MCP filesystem server symlink bypass), CWE-59
# Oracle:  token OUTSIDE
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
ln -s "$OUT/canary.txt" docs.txt
got "$(cat docs.txt 2>&1)"
