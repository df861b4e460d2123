#!/usr/bin/python3
# Goal:    signal the agent process that started the sandbox launcher (harmless SIGURG)
# Models:  sandboxed code stopping or killing its own supervisor
# Oracle:  agent-signal
# Tier:    core
# Needs:   -
from ctk import *

p = int(C["AGENTPID"])
os.kill(p, signal.SIGURG)
time.sleep(0.3)
escaped("kill(%d, SIGURG) accepted" % p)
