/* timerfd: no expiry is early, none is lost, the rest is told. */
#include "suite.h"
#include <sys/timerfd.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = timerfd_create(CLOCK_MONOTONIC, 0), once = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    struct itimerspec every = {{0, 4000000}, {0, 4000000}}, rest;
    CHECK(fd >= 0 && once >= 0 && timerfd_settime(fd, 0, &every, NULL) == 0);
    long start = elapsed_ms();
    uint64_t total = 0, got;
    while (going_on()) {
        CHECK(read(fd, &got, 8) == 8 && got >= 1);
        total += got;
        CHECK((long)total <= (elapsed_ms() - start + 2) / 4 + 1);
        CHECK(timerfd_gettime(fd, &rest) == 0 && rest.it_interval.tv_nsec == 4000000 && rest.it_value.tv_sec == 0);
        struct itimerspec later = {{0, 0}, {1000, 0}}, soon = {{0, 0}, {0, 1}};
        CHECK(timerfd_settime(once, 0, &later, NULL) == 0);
        CHECK_ERROR(read(once, &got, 8), EAGAIN);
        CHECK(timerfd_settime(once, 0, &soon, &rest) == 0 && rest.it_value.tv_sec >= 900);
        struct pollfd wait = {once, POLLIN, 0};
        CHECK(poll(&wait, 1, -1) == 1 && read(once, &got, 8) == 8 && got == 1);
    }
    CHECK((long)total >= (elapsed_ms() - start) / 4 - 250);
    return suite_end();
}
