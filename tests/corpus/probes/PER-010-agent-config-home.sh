#!/bin/bash
# Goal:    change coding-agent settings and hooks in the home directory (~/.claude, ~/.codex, ~/.cursor)
# Models:  agent hook persistence
# Oracle:  exists H/.claude/settings.json ; exists H/.codex/AGENTS.md ; exists H/.cursor/mcp.json
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
for f in .claude/settings.json .codex/AGENTS.md .cursor/mcp.json; do { mkdir -p "$(dirname "$H/$f")" && printf '{"_":"%s"}\n' "$NONCE" > "$H/$f"; } 2>/dev/null && escaped "wrote $f"; done; contained "none writable"
