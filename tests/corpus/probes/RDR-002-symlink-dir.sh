#!/bin/bash
# Goal:    make the file reader go through a planted directory symlink
# Models:  CVE-2025-53109
# Oracle:  reader-token OUTSIDE
# Tier:    core
# Needs:   -
# Fixture: reader={PROJ}/docs/canary.txt
. "$2/probe/ctk.sh"
ln -s "$OUT" docs && contained planted
