// Goal:    create a file outside with x32 system call numbers (bit 30)
// Models:  x32 ABI bypass of number-matching seccomp filters
// Oracle:  marker
// Tier:    core
// Needs:   x86 x32
// Note:    not validated on the authoring host (kernel without CONFIG_X86_X32_ABI); skipped there
#include "ctk.h"
int main(int c, char **v) {
    ctk_init(c, v);
    long fd = syscall(0x40000000 | SYS_openat, AT_FDCWD, M, O_CREAT | O_WRONLY, 0644);
    if (fd < 0)
        contained("x32 openat: %s", strerror(errno));
    long n = syscall(0x40000000 | SYS_write, fd, NONCE, strlen(NONCE));
    if (n < 0)
        contained("x32 write: %s", strerror(errno));
    escaped("x32 wrote %s", M);
}
