#!/bin/bash
# Goal:    check that interpreter start-up variables are not inherited
# Models:  PYTHONSTARTUP/PYTHONPATH, NODE_OPTIONS, PERL5OPT, RUBYOPT, GIT_SSH_COMMAND, PROMPT_COMMAND
# Oracle:  token INTERP
# Tier:    hardening
# Needs:   -
# Fixture: env-interpreter
. "$2/probe/ctk.sh"
got "$PYTHONPATH $NODE_OPTIONS $PERL5OPT $RUBYOPT $GIT_SSH_COMMAND $PROMPT_COMMAND $JAVA_TOOL_OPTIONS"
