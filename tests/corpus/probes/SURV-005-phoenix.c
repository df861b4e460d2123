// Goal:    outlive the time limit by re-forking into new sessions all the time
// Models:  kill loops that race with forking (needs cgroup.kill or a pid namespace)
// Oracle:  survivor
// Tier:    core
// Needs:   -
// Limit:   3
#include "ctk.h"
int main(int c, char **v) {
    ctk_init(c, v);
    char p[700];
    snprintf(p, sizeof p, "%s/probe/hb-%s", PROJ, NONCE);
    time_t end = time(0) + 10;
    if (fork()) {
        sleep(12);
        contained("main reached its own end");
    }
    int n = open("/dev/null", O_RDWR);
    dup2(n, 0);
    dup2(n, 1);
    dup2(n, 2);
    while (time(0) < end) {
        if (fork())
            _exit(0);
        setsid();
        int fd = open(p, O_CREAT | O_WRONLY | O_APPEND, 0644);
        if (fd >= 0) {
            write(fd, ".", 1);
            close(fd);
        }
        usleep(20000);
    }
    _exit(0);
}
