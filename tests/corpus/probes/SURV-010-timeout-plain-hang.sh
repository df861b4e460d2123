#!/bin/bash
# Goal:    hang forever in the foreground, ignoring SIGTERM, and see whether anything ends it
# Models:  launcher without an own time limit
# Oracle:  hang
# Tier:    debatable
# Needs:   -
# Limit:   3
# Note:    where the launcher has no own limit, the harness kills it as an agent would, and this counts as ESCAPED
. "$2/probe/ctk.sh"
trap '' TERM INT HUP; s=$SECONDS; while [ $((SECONDS-s)) -lt 12 ]; do sleep 0.5; done; contained "reached its own end"
