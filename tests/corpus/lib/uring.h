/* A small io_uring: one request at a time, and its answer is waited for. */
#include "ctk.h"
#include <linux/io_uring.h>
static int ur_fd;
static struct io_uring_params ur_p;
static char *ur_sq, *ur_cq;
static struct io_uring_sqe *ur_sqe;
static int ur_sqpoll;
static int ur_init(unsigned flags) {
    memset(&ur_p, 0, sizeof ur_p);
    ur_p.flags = flags;
    ur_p.sq_thread_idle = 2000;
    ur_sqpoll = !!(flags & IORING_SETUP_SQPOLL);
    ur_fd = syscall(425, 8, &ur_p);
    if (ur_fd < 0)
        return -1;
    size_t sl = ur_p.sq_off.array + ur_p.sq_entries * 4,
           cl = ur_p.cq_off.cqes + ur_p.cq_entries * sizeof(struct io_uring_cqe);
    ur_sq = mmap(0, sl, 3, MAP_SHARED | MAP_POPULATE, ur_fd, IORING_OFF_SQ_RING);
    ur_cq = mmap(0, cl, 3, MAP_SHARED | MAP_POPULATE, ur_fd, IORING_OFF_CQ_RING);
    ur_sqe =
        mmap(0, ur_p.sq_entries * sizeof(struct io_uring_sqe), 3, MAP_SHARED | MAP_POPULATE, ur_fd, IORING_OFF_SQES);
    return (ur_sq == MAP_FAILED || ur_cq == MAP_FAILED || ur_sqe == MAP_FAILED) ? -1 : 0;
}
static struct io_uring_sqe *ur_get(void) {
    memset(ur_sqe, 0, sizeof *ur_sqe);
    return ur_sqe;
}
static int ur_run(void) { /* submits ur_sqe[0]; returns cqe.res */
    unsigned *tail = (unsigned *)(ur_sq + ur_p.sq_off.tail), *mask = (unsigned *)(ur_sq + ur_p.sq_off.ring_mask),
             *arr = (unsigned *)(ur_sq + ur_p.sq_off.array);
    unsigned *fl = (unsigned *)(ur_sq + ur_p.sq_off.flags);
    unsigned *chead = (unsigned *)(ur_cq + ur_p.cq_off.head), *ctail = (unsigned *)(ur_cq + ur_p.cq_off.tail),
             *cmask = (unsigned *)(ur_cq + ur_p.cq_off.ring_mask);
    struct io_uring_cqe *cqes = (void *)(ur_cq + ur_p.cq_off.cqes);
    unsigned t = *tail;
    arr[t & *mask] = 0;
    __atomic_store_n(tail, t + 1, __ATOMIC_RELEASE);
    if (ur_sqpoll) {
        __sync_synchronize();
        if (__atomic_load_n(fl, __ATOMIC_ACQUIRE) & IORING_SQ_NEED_WAKEUP)
            syscall(426, ur_fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
        for (int i = 0; i < 4000 && __atomic_load_n(ctail, __ATOMIC_ACQUIRE) == *chead; i++)
            usleep(1000);
        if (__atomic_load_n(ctail, __ATOMIC_ACQUIRE) == *chead)
            return -ETIME;
    } else {
        int r = syscall(426, ur_fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        if (r < 0)
            return -errno;
    }
    unsigned h = *chead;
    int res = cqes[h & *cmask].res;
    __atomic_store_n(chead, h + 1, __ATOMIC_RELEASE);
    return res;
}
