#!/usr/bin/python3
# Goal:    write outside with a 4000-byte path full of ./ and ../ pairs
# Models:  lexical normaliser limits (CWE-22), PATH_MAX edge
# Oracle:  marker
# Tier:    core
# Needs:   -
from ctk import *

p = PROJ + "/" + "src/../" * ((3900 - len(PROJ)) // 7) + "../../outside/m-" + NONCE
mark(p)
escaped("wrote with a %d byte path" % len(p))
