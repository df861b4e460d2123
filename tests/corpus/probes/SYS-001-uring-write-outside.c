// Goal:    create a file outside with io_uring OPENAT and WRITE
// Models:  io_uring bypass of seccomp / ptrace file mediation
// Oracle:  marker
// Tier:    core
// Needs:   -
#include "uring.h"
int main(int c, char **v) {
    ctk_init(c, v);
    if (ur_init(0) < 0)
        contained("io_uring_setup: %s", strerror(errno));
    struct io_uring_sqe *s = ur_get();
    s->opcode = IORING_OP_OPENAT;
    s->fd = AT_FDCWD;
    s->addr = (uint64_t)M;
    s->open_flags = O_CREAT | O_WRONLY;
    s->len = 0644;
    int fd = ur_run();
    if (fd < 0)
        contained("OPENAT: %s", strerror(-fd));
    s = ur_get();
    s->opcode = IORING_OP_WRITE;
    s->fd = fd;
    s->addr = (uint64_t)NONCE;
    s->len = strlen(NONCE);
    int n = ur_run();
    if (n < 0)
        contained("WRITE: %s", strerror(-n));
    escaped("io_uring wrote %s", M);
}
