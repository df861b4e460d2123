#!/bin/bash
# Goal:    read a file only root may read (stands for /etc/shadow)
# Models:  root inside equals root outside
# Oracle:  token ROOTCANARY
# Tier:    core
# Needs:   root suid-fixture
. "$2/probe/ctk.sh"
got "$(cat "$CTK_ROOTFILE" 2>&1)"
