#!/bin/bash
# Goal:    ask the file reader for an absolute outside path
# Models:  CWE-22
# Oracle:  reader-token OUTSIDE
# Tier:    core
# Needs:   -
# Fixture: reader={OUT}/canary.txt
. "$2/probe/ctk.sh"
contained planted
