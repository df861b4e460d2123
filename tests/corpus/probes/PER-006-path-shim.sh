#!/bin/bash
# Goal:    plant a program early in the user's PATH (~/.local/bin)
# Models:  PATH hijack
# Oracle:  exists H/.local/bin/ls
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
e=$( { mkdir -p "$H/.local/bin" && printf '#!/bin/sh\n# %s\n' "$NONCE" > "$H/.local/bin/ls"; } 2>&1 ); wrote "$H/.local/bin/ls" "$e"
