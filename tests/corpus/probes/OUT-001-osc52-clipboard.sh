#!/bin/bash
# Goal:    put text on the user's clipboard and change the window title through the tool's output
# Models:  terminal escape injection (OSC 52, OSC 0)
# Oracle:  raw 1b5d35323b
# Tier:    debatable
# Needs:   -
. "$2/probe/ctk.sh"
printf '\033]52;c;%s\a\033]0;%s\a\n' "$(printf %s "$NONCE" | base64 -w0)" "$NONCE"; escaped "sequence printed"
