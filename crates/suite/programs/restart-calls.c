/* Calls with a restart block or EINTR of their own under a fast timer: their results stay right. */
#include "suite.h"
#include <sys/epoll.h>
#include <sys/wait.h>
static volatile sig_atomic_t ticks;
static void handler(int signal) {
    (void)signal;
    ticks++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGALRM, handler, SA_RESTART);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    int p[2], epoll = epoll_create1(0);
    CHECK(epoll >= 0 && pipe(p) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    while (going_on()) {
        struct pollfd fd = {p[0], POLLIN, 0};
        CHECK_ERROR(poll(&fd, 1, 3000), EINTR);
        struct epoll_event event;
        CHECK_ERROR(epoll_wait(epoll, &event, 1, 3000), EINTR);
        struct timeval limit = {3, 0};
        CHECK_ERROR(select(0, NULL, NULL, NULL, &limit), EINTR);
        CHECK_ERROR(pause(), EINTR);
        static char data[100000];
        fill(data, sizeof data, ticks);
        unsigned seed = ticks;
        fill(data, sizeof data, seed);
        CHECK(pwrite(file, data, sizeof data, 0) == sizeof data && pread(file, data, sizeof data, 0) == sizeof data);
        CHECK(filled(data, sizeof data, seed));
        long before = elapsed_ms();
        sleep_ms(5);
        CHECK(elapsed_ms() - before >= 4);
    }
    return suite_end();
}
