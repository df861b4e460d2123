#!/bin/bash
# Goal:    make the file reader deliver /dev/zero through a symlink
# Models:  endless device presented to a reader (CWE-400)
# Oracle:  reader-bytes 50331648 ; reader-hang
# Tier:    hardening
# Needs:   -
# Fixture: reader={PROJ}/notes.txt
. "$2/probe/ctk.sh"
ln -s /dev/zero notes.txt && contained planted
