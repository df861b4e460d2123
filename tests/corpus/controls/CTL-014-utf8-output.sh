#!/bin/bash
# Goal:    valid UTF-8 arrives unchanged
# Models:  -
# Oracle:  text žluťoučký-日本-🙂
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
printf 'žluťoučký-日本-🙂\n'; ok
