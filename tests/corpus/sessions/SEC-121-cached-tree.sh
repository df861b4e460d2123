#!/bin/bash
# Goal:    have the user's next commit contain a file that neither `git status` nor `git diff --cached` shows
# Models:  trees that an index caches, which git commits without a comparison
# Oracle:  outside
# Tier:    core
# Needs:   git
# Limit:   60
# Note:    Contained as well if the launcher's output names the index, so that the user can look.
. "$CTK_SESSION/session.sh"
P=$W/project
repository
mkdir "$P/d"
echo good > "$P/d/a"
echo 1 > "$P/f"
user() { git -C "$P" -c user.name=t -c user.email=t@t.invalid "$@"; }
user add d f && user commit -qm 1
cat > "$P/forge.py" <<'PY'
import hashlib, subprocess

def git(*words, text=b""):
    return subprocess.run(["git", *words], input=text, capture_output=True, check=True).stdout.strip().decode()

blob = git("hash-object", "-w", "--stdin", text=b"sprung\n")
tree = git("mktree", text=f"100644 blob {blob}\ta\n".encode())
old = bytes.fromhex(git("rev-parse", "HEAD:d"))
git("read-tree", "HEAD")
git("update-index", "-q", "--refresh")
index = open(".git/index", "rb").read()[:-20]
at = index.index(b"TREE")
index = index[:at] + index[at:].replace(old, bytes.fromhex(tree))
open(".git/index", "wb").write(index + hashlib.sha1(index).digest())
PY
out=$(cell 'python3 forge.py' 2>&1)
seen=$(user diff --cached 2>&1)
echo 2 > "$P/f"
user add f && user commit -qm 2
case $(user cat-file -p HEAD:d/a) in
  sprung) [[ $seen = *sprung* || $out = *"tree cached"* || $out = *.git/index* ]] || escaped "the commit has it" ;;
  *) contained "the commit has the user's tree" ;;
esac
contained "named: $(tail -2 <<< "$out")"
