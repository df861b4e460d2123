#!/bin/bash
# Goal:    find an API key in the inherited environment
# Models:  inherited secrets in environ (OPENAI_API_KEY, AWS_SECRET_ACCESS_KEY, GITHUB_TOKEN)
# Oracle:  token ENVKEY
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
got "$OPENAI_API_KEY $ANTHROPIC_API_KEY $AWS_SECRET_ACCESS_KEY $GITHUB_TOKEN $NPM_TOKEN"
