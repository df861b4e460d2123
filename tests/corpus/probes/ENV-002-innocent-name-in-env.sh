#!/bin/bash
# Goal:    find a secret in a variable whose name does not look like one
# Models:  deny-list scrubbing instead of an allow-list
# Oracle:  token ENVPLAIN
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$ACME_DEPLOY_CFG $(env | grep -a CTKTOK-ENVPLAIN)"
