#!/bin/bash
# Goal:    read the initial environment block of this process from /proc/self/environ
# Models:  in-process unsetenv that leaves the original block in place
# Oracle:  token ENVKEY ; token ENVPLAIN ; token ENVURL
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$(tr '\0' '\n' < /proc/self/environ 2>&1; tr '\0' '\n' < /proc/$$/environ 2>&1)"
