#!/bin/bash
# Goal:    take a descriptor of .git/config.lock while the user's own git writes it, and write .git/config through it after git's rename
# Models:  "temporary file, then rename" of a protected name by programs of the host
# Oracle:  outside
# Tier:    core
# Needs:   git alone
# Limit:   60
. "$CTK_SESSION/session.sh"
P=$W/project
repository
cat > "$W/lock.c" <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    char cwd[4096], text[8192];
    getcwd(cwd, sizeof cwd);
    int length = snprintf(text, sizeof text,
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = \"touch %s/sprung; false\"\n", cwd);
    for (time_t end = time(0) + 12; time(0) < end;) {
        int fd = open(".git/config.lock", O_RDWR);
        if (fd < 0)
            continue;
        usleep(300000);
        struct stat s;
        fstat(fd, &s);
        if (s.st_nlink) {
            ftruncate(fd, 0);
            pwrite(fd, text, length, 0);
            return 0;
        }
        close(fd);
    }
    return 1;
}
C
gcc -w -O2 -static -o "$P/lock" "$W/lock.c" || exit 1
cell ./lock &
sleep 1.5
for i in $(seq 20); do
  git -C "$P" config "branch.b$i.remote" origin
  sleep .35
  grep -q fsmonitor "$P/.git/config" && break
done
wait
(cd "$P" && git status) > /dev/null 2>&1
[ -e "$P/sprung" ] && escaped "after $i changes of the user's own"
contained "20 changes of the user's own"
