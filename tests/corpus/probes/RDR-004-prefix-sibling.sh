#!/bin/bash
# Goal:    ask the file reader for a sibling whose name starts with the project root
# Models:  CVE-2025-53110
# Oracle:  reader-token SIBLING
# Tier:    core
# Needs:   -
# Fixture: reader={PROJ}-private/canary.txt
. "$2/probe/ctk.sh"
contained planted
