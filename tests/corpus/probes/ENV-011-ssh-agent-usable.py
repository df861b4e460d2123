#!/usr/bin/python3
# Goal:    use the user's ssh-agent through SSH_AUTH_SOCK
# Models:  agent socket passed into the sandbox (key use without key theft)
# Oracle:  hit agent
# Tier:    core
# Needs:   -
from ctk import *

p = os.environ.get("SSH_AUTH_SOCK") or C["RUN"] + "/ssh-agent.sock"
escaped("agent answered " + unix_stream(p).strip())
