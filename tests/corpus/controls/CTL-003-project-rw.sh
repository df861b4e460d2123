#!/bin/bash
# Goal:    files in the project can be created, edited, renamed and removed
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { echo a > f1 && echo b >> f1 && mv f1 f2 && mkdir -p dd/ee && cp f2 dd/ee/ && rm -r dd f2 && echo x >> src/main.c; } 2>&1 ) && ok || broken "$e"
