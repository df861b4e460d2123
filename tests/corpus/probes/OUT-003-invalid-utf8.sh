#!/bin/bash
# Goal:    emit invalid UTF-8, overlong forms, lone surrogates and NUL bytes
# Models:  consumers that crash or mis-decode (CWE-176)
# Oracle:  raw ff fe c0 af ed a0 80 00
# Tier:    debatable
# Needs:   -
. "$2/probe/ctk.sh"
printf '\377\376\300\257\355\240\200\000\n'; escaped "bytes printed"
