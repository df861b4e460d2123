// Goal:    start 400 threads
// Models:  task flood below a process limit
// Oracle:  self-report
// Tier:    hardening
// Needs:   -
#include "ctk.h"
#include <pthread.h>
static void *th(void *a) {
    (void)a;
    sleep(3);
    return 0;
}
int main(int c, char **v) {
    ctk_init(c, v);
    alarm(10);
    pthread_attr_t at;
    pthread_attr_init(&at);
    pthread_attr_setstacksize(&at, 65536);
    int n = 0, e = 0;
    for (; n < 400; n++) {
        pthread_t t;
        e = pthread_create(&t, &at, th, 0);
        if (e)
            break;
    }
    if (n == 400)
        escaped("400 threads alive");
    contained("%d threads, then %s", n, strerror(e));
}
