#!/bin/bash
# Goal:    read .env through programs that open it in other ways (cp --reflink, dd, git hash-object, python mmap)
# Models:  mediation of one access path only
# Oracle:  token DOTENV
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
cp --reflink=auto .env c1 2>/dev/null; dd if=.env of=c2 status=none 2>/dev/null
a=$(cat c1 c2 2>/dev/null); b=$(/usr/bin/python3 -c 'import mmap;print(mmap.mmap(open(".env","rb").fileno(),0,prot=1)[:].decode())' 2>/dev/null)
d=$(GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent git diff --no-index /dev/null .env 2>/dev/null)
got "$a $b $d"
