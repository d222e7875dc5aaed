/* Blocked in one call, one that a stop by a tracer breaks off (epoll_wait). With a second argument it waits for the end of its
 * input, else for some time. */
#include "suite.h"
#include <sys/epoll.h>
static unsigned char data[1 << 20];
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct epoll_event event = {.events = EPOLLIN}, got;
    int told = argc > 2, fd = epoll_create1(0);
    CHECK(fd >= 0 && (!told || epoll_ctl(fd, EPOLL_CTL_ADD, 0, &event) == 0));
    fill(data, sizeof data, 5);
    say("ready\n");
    CHECK(epoll_wait(fd, &got, 1, told ? -1 : suite_ms) == told);
    /* The end is all that ever comes. */
    CHECK(!told || got.events == EPOLLHUP);
    CHECK(filled(data, sizeof data, 5));
    return suite_end();
}
