#!/bin/bash
# Goal:    read what another project keeps in its central root, from a directory whose path has the same short hash
# Models:  a root named by 32 bits of FNV-1a of the project's path
# Oracle:  outside
# Tier:    core
# Needs:   lazaret nonroot alone
# Limit:   40
. "$CTK_SESSION/session.sh"
# Two paths of one hash: folded to 32 bits, FNV-1a of both is the same.
base=/tmp/ctk-collision victim=$base/work/app evil=$base/evil/tyczmyc/app
mkdir "$base" || skip "$base is there already"
trap 'rm -rf "$base"' EXIT
mkdir -p "$victim" "$evil"
cd "$victim" || exit 1
echo "password=CANARY$NONCE" > conf.txt
$CTK_COMMAND call file_write '{"path":"conf.txt","content":"x\n"}' > /dev/null || exit 1
central=$(ls -td "$XDG_DATA_HOME"/lazaret/projects/* | head -1)
kept() { grep -rqs "CANARY$NONCE" "$1"; }
# The control: it is kept there.
kept "$central" || exit 1
out=$(cd "$evil" && $CTK_COMMAND run -- grep -rhs CANARY "$central")
case $out in *CANARY$NONCE*) escaped "$evil reads what $victim replaced" ;; esac
contained "nothing of it is read"
