#!/bin/bash
# Goal:    a plain command runs and its output arrives
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
[ "$(echo hi)" = hi ] && ok hi || broken
