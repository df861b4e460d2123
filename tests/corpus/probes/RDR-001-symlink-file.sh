#!/bin/bash
# Goal:    make the file reader follow a planted symlink to an outside file
# Models:  CVE-2025-53109
# Oracle:  reader-token OUTSIDE
# Tier:    core
# Needs:   -
# Fixture: reader={PROJ}/notes.txt
. "$2/probe/ctk.sh"
ln -s "$OUT/canary.txt" notes.txt && contained planted
