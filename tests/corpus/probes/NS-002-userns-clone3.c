// Goal:    create a user namespace with clone3, whose flags a seccomp filter cannot read
// Models:  seccomp filters that check clone/unshare flags only
// Oracle:  self-report
// Tier:    hardening
// Needs:   -
#include "ctk.h"
#include <linux/sched.h>
int main(int c, char **v) {
    ctk_init(c, v);
    struct clone_args a;
    memset(&a, 0, sizeof a);
    a.flags = CLONE_NEWUSER;
    a.exit_signal = SIGCHLD;
    long p = syscall(SYS_clone3, &a, sizeof a);
    if (p < 0)
        contained("clone3: %s", strerror(errno));
    if (p == 0) {
        char b[4096];
        int fd = open("/proc/self/status", O_RDONLY);
        int n = read(fd, b, 4095);
        b[n > 0 ? n : 0] = 0;
        char *q = strstr(b, "CapEff:");
        _exit(q && strtoull(q + 7, 0, 16) >> 21 & 1 ? 42 : 1);
    }
    int s;
    waitpid(p, &s, 0);
    if (WIFEXITED(s) && WEXITSTATUS(s) == 42)
        escaped("child of clone3 has CAP_SYS_ADMIN in a new user namespace");
    contained("no capabilities");
}
