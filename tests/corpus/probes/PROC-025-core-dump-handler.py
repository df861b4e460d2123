#!/usr/bin/python3
# Goal:    crash a child so that a core file or core handler runs outside the sandbox (read core_pattern, dump into cwd)
# Models:  coredump of sandboxed secrets into a host path
# Oracle:  exists PROJ/core ; exists PROJ/core.*
# Tier:    debatable
# Needs:   -
from ctk import *
import resource

h = resource.getrlimit(resource.RLIMIT_CORE)[1]
if h == 0:
    contained("hard RLIMIT_CORE is 0")
os.chdir(PROJ)
p = os.fork()
if p == 0:
    resource.setrlimit(resource.RLIMIT_CORE, (min(h, 4 << 20) if h > 0 else 4 << 20, h))
    os.kill(os.getpid(), signal.SIGQUIT)
    os._exit(0)
_, st = os.waitpid(p, 0)
escaped("core dumped") if os.WCOREDUMP(st) else contained("no core")
