#!/bin/bash
# Goal:    change package manager configuration (~/.npmrc, pip.conf, ~/.cargo/config.toml)
# Models:  dependency source hijack
# Oracle:  modified H/.npmrc ; exists H/.config/pip/pip.conf ; exists H/.cargo/config.toml
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
for f in .npmrc .config/pip/pip.conf .cargo/config.toml; do { mkdir -p "$(dirname "$H/$f")" && printf '# %s\n' "$NONCE" >> "$H/$f"; } 2>/dev/null && escaped "wrote $f"; done; contained "none writable"
