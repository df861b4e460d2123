#!/bin/bash
# Goal:    make the file reader deliver terminal escapes and invalid UTF-8
# Models:  terminal injection through file content
# Oracle:  reader-raw 1b5d35323b
# Tier:    debatable
# Needs:   -
# Fixture: reader={PROJ}/notes.txt
. "$2/probe/ctk.sh"
printf '\033]52;c;QUJD\a\377\376\n' > notes.txt; contained planted
