/* epoll: level, edge and one-shot, changed and deleted interest, nested sets, timeouts. */
#include "suite.h"
#include <sys/epoll.h>
static int wait_event(int epoll, uint64_t data, unsigned events) {
    struct epoll_event got[4];
    int n = epoll_wait(epoll, got, 4, 0);
    CHECK(n >= 0 && n <= 1);
    if (n == 1) CHECK(got[0].data.u64 == data && got[0].events == events);
    return n;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2];
    char c[10];
    CHECK(pipe2(p, O_NONBLOCK) == 0);
    int epoll = epoll_create1(0), outer = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0 && outer >= 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &event) == 0);
    for (uint64_t round = 1; going_on(); round++) {
        event = (struct epoll_event){.events = EPOLLIN, .data.u64 = round << 33};
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, p[0], &event) == 0 && wait_event(epoll, 0, 0) == 0);
        CHECK_ERROR(epoll_ctl(epoll, EPOLL_CTL_ADD, p[0], &event), EEXIST);
        CHECK(write(p[1], "a", 1) == 1);
        CHECK(wait_event(epoll, round << 33, EPOLLIN) == 1 && wait_event(epoll, round << 33, EPOLLIN) == 1);
        CHECK(wait_event(outer, 5, EPOLLIN) == 1);
        event.events = EPOLLIN | EPOLLET;
        CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, p[0], &event) == 0);
        CHECK(wait_event(epoll, round << 33, EPOLLIN) == 1 && wait_event(epoll, 0, 0) == 0);
        CHECK(write(p[1], "b", 1) == 1 && wait_event(epoll, round << 33, EPOLLIN) == 1);
        event.events = EPOLLIN | EPOLLONESHOT;
        CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, p[0], &event) == 0);
        CHECK(wait_event(epoll, round << 33, EPOLLIN) == 1);
        CHECK(write(p[1], "c", 1) == 1 && wait_event(epoll, 0, 0) == 0);
        CHECK(read(p[0], c, sizeof c) == 3 && memcmp(c, "abc", 3) == 0);
        long before = elapsed_ms();
        CHECK(epoll_wait(epoll, &event, 1, 8) == 0 && elapsed_ms() - before >= 7);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, p[0], NULL) == 0);
        CHECK_ERROR(epoll_ctl(epoll, EPOLL_CTL_DEL, p[0], NULL), ENOENT);
    }
    return suite_end();
}
