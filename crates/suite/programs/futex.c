/* Futexes of a single thread: EAGAIN, timeouts relative and absolute, wake with nobody there, a signal in the wait. */
#include "suite.h"
#include <linux/futex.h>
static volatile int ticks;
static void handler(int signal) {
    (void)signal;
    ticks++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGALRM, handler, 0);
    static uint32_t word = 5;
    while (going_on()) {
        struct timespec limit = {0, 5000000};
        CHECK_ERROR(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 4, NULL), EAGAIN);
        long before = elapsed_ms();
        CHECK_ERROR(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &limit), ETIMEDOUT);
        CHECK(elapsed_ms() - before >= 4);
        CHECK(clock_gettime(CLOCK_MONOTONIC, &limit) == 0);
        limit.tv_nsec += 4000000;
        if (limit.tv_nsec >= 1000000000) limit.tv_sec++, limit.tv_nsec -= 1000000000;
        CHECK_ERROR(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 5, &limit, NULL, ~0u), ETIMEDOUT);
        CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) == 0);
        struct itimerval soon = {{0, 4000}, {0, 4000}}, never = {0};
        int count = ticks;
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        CHECK_ERROR(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, NULL), EINTR);
        CHECK(ticks > count && setitimer(ITIMER_REAL, &never, NULL) == 0);
    }
    return suite_end();
}
