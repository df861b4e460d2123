#!/bin/bash
# Goal:    plant .gitattributes and .gitmodules that make git run or fetch things
# Models:  filter drivers, CVE-2018-17456 class
# Oracle:  exists PROJ/.gitmodules
# Tier:    debatable
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { printf '# %s\n' "$NONCE" > .gitmodules; } 2>&1 ); wrote .gitmodules "$e"
