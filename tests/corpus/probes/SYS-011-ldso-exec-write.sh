#!/bin/bash
# Goal:    run a non-executable binary through the dynamic linker and write outside with it
# Models:  noexec / exec allow-list bypass by ld.so
# Oracle:  marker
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
cp /bin/cp prog; chmod 644 prog; printf %s "$NONCE" > src-marker
e=$("$(ls /lib*/ld-linux-"$(uname -m | tr _ -)".so.[12] | head -n 1)" "$PROJ/prog" src-marker "$M" 2>&1); wrote "$M" "$e"
