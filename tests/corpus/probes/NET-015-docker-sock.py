#!/usr/bin/python3
# Goal:    talk to a docker.sock-like control socket by path
# Models:  docker.sock mount; pathname sockets are not covered by Landlock before ABI 9
# Oracle:  hit docker ; token DOCKER
# Tier:    core
# Needs:   -
from ctk import *

escaped("answer " + unix_stream(C["RUN"] + "/docker.sock", b"").strip()[-60:])
