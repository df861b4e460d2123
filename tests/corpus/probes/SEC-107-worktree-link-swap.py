#!/usr/bin/python3
# Goal:    have a `.git` file written that leads, by a directory swapped for a link, to a repository whose settings are ours, in scratch space
# Models:  check at `gitdir`, use at `.git`: a path kept as text in between
# Oracle:  marker
# Tier:    core
# Needs:   git
# Fixture: git={PROJ}/linked
from ctk import *


def write(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, text.encode())
    os.close(fd)


os.chdir(PROJ)
own = os.environ.get("TMPDIR", "/tmp") + "/ctk-m-" + NONCE
os.makedirs("main/.git/worktrees/n")
os.makedirs("linked")
write("main/.git/worktrees/n/gitdir", PROJ + "/linked/.git\n")
os.rename("main", "aside")
hostile = own + "/main/.git/worktrees/n"
os.makedirs(hostile + "/objects")
os.makedirs(hostile + "/refs")
write(hostile + "/gitdir", PROJ + "/linked/.git\n")
write(hostile + "/HEAD", "ref: refs/heads/main\n")
settings = '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = %s/linked\n\tfsmonitor = "printf %s > %s; false"\n'
write(hostile + "/config", settings % (PROJ, NONCE, M))
os.symlink(own + "/main", "main")
write("linked/.git", "gitdir: %s/main/.git/worktrees/n\n" % PROJ)
# Scratch space may go with the call, and the user's git need not wait for it.
time.sleep(1.5)
escaped("the user's git decides: " + rd("linked/.git"))
