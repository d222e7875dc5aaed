/* poll and ppoll: readiness, timeouts not early, a mask that lets a signal in only while waiting. */
#include "suite.h"
static volatile sig_atomic_t got;
static void handler(int signal) {
    (void)signal;
    got++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2], q[2];
    char c;
    sigset_t block, open_mask;
    CHECK(pipe(p) == 0 && pipe(q) == 0);
    on(SIGUSR1, handler, 0);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
    for (int round = 1; going_on(); round++) {
        struct pollfd fds[3] = {{p[0], POLLIN, 0}, {q[1], POLLOUT, 0}, {-1, POLLIN, 0}};
        CHECK(poll(fds, 3, -1) == 1 && fds[0].revents == 0 && fds[1].revents == POLLOUT && fds[2].revents == 0);
        CHECK(write(p[1], "x", 1) == 1 && poll(fds, 1, -1) == 1 && fds[0].revents == POLLIN);
        CHECK(read(p[0], &c, 1) == 1);
        long before = elapsed_ms();
        CHECK(poll(fds, 1, 12) == 0 && elapsed_ms() - before >= 11);
        struct timespec limit = {0, 7000000};
        CHECK(ppoll(fds, 1, &limit, NULL) == 0);
        CHECK(kill(getpid(), SIGUSR1) == 0 && got == round - 1);
        limit = (struct timespec){5, 0};
        CHECK_ERROR(ppoll(fds, 1, &limit, &open_mask), EINTR);
        CHECK(got == round);
        fds[0].fd = 999;
        CHECK(poll(fds, 1, 0) == 1 && fds[0].revents == POLLNVAL);
    }
    return suite_end();
}
