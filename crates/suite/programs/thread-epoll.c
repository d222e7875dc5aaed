/* Three threads wait at one epoll with EPOLLONESHOT: a socket is served by one at a time, who arms it again. */
// suite: flags -pthread
#include "threads.h"
#include <sys/epoll.h>
enum { SOCKETS = 6 };
static int ep, pairs[SOCKETS][2], busy[SOCKETS];
static void arm(int i, int how) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = i};
    CHECK(epoll_ctl(ep, how, pairs[i][1], &event) == 0);
}
static void *serve(void *unused) {
    (void)unused;
    for (;;) {
        struct epoll_event event;
        int n = epoll_wait(ep, &event, 1, -1);
        if (n < 0 && errno == EINTR) continue;
        CHECK(n == 1);
        int i = event.data.u32, more = 0;
        if (i == SOCKETS) return NULL;
        CHECK(__atomic_add_fetch(&busy[i], 1, __ATOMIC_SEQ_CST) == 1);
        CHECK(read(pairs[i][1], &more, sizeof more) == sizeof more);
        more = more * 3 + i;
        __atomic_sub_fetch(&busy[i], 1, __ATOMIC_SEQ_CST);
        arm(i, EPOLL_CTL_MOD);
        CHECK(write(pairs[i][1], &more, sizeof more) == sizeof more);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK((ep = epoll_create1(EPOLL_CLOEXEC)) >= 0);
    for (int i = 0; i < SOCKETS; i++) {
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pairs[i]) == 0);
        arm(i, EPOLL_CTL_ADD);
    }
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(serve, i);
    for (int round = 0; going_on(); round++) {
        for (int i = 0; i < SOCKETS; i++) {
            int value = (round + i) % 100000;
            CHECK(write(pairs[i][0], &value, sizeof value) == sizeof value);
        }
        for (int i = SOCKETS - 1; i >= 0; i--) {
            int answer;
            CHECK(read(pairs[i][0], &answer, sizeof answer) == sizeof answer);
            CHECK(answer == (round + i) % 100000 * 3 + i);
        }
    }
    int p[2];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = SOCKETS};
    CHECK(pipe(p) == 0 && write(p[1], "x", 1) == 1 && epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
