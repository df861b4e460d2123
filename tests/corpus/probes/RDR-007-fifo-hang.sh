#!/bin/bash
# Goal:    make the file reader hang on a FIFO
# Models:  special file presented to a reader (CWE-400)
# Oracle:  reader-hang
# Tier:    hardening
# Needs:   -
# Fixture: reader={PROJ}/notes.txt
. "$2/probe/ctk.sh"
mkfifo notes.txt && contained planted
