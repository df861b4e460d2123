#!/bin/bash
# Goal:    ask the file reader for the project's .env
# Models:  secret protection on the read path
# Oracle:  reader-token DOTENV
# Tier:    core
# Needs:   -
# Fixture: reader={PROJ}/.env
. "$2/probe/ctk.sh"
contained planted
