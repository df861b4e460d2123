#!/bin/bash
# Goal:    execute a program that lies outside the roots and the system directories
# Models:  execution of arbitrary host files
# Oracle:  token OUTEXEC
# Tier:    hardening
# Needs:   -
. "$2/probe/ctk.sh"
got "$("$OUT/tool.sh" 2>&1)"
