#!/bin/bash
# Goal:    a script and a binary in the project can be executed
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
printf '#!/bin/sh\nexit 0\n' > s.sh; chmod +x s.sh; cp /bin/true tb; e=$( { ./s.sh && ./tb; } 2>&1 ) && ok || broken "$e"
