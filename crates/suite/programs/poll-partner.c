/* Blocked in poll, select or epoll_wait without end until a partner writes. */
#include "suite.h"
#include <sys/epoll.h>
static int p[2];
static void body(void) {
    signal(SIGPIPE, SIG_DFL);
    close(p[0]);
    for (unsigned char i = 0;; i++) {
        sleep_ms(5 + i * 7 % 31);
        write_all(p[1], &i, 1);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(p) == 0);
    pid_t pid = partner(body);
    close(p[1]);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, p[0], &event) == 0);
    for (unsigned char round = 0; going_on(); round++) {
        struct pollfd one = {p[0], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(p[0], &set);
        unsigned char got;
        if (round % 3 == 0) CHECK(poll(&one, 1, -1) == 1 && one.revents == POLLIN);
        if (round % 3 == 1) CHECK(select(p[0] + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(p[0], &set));
        if (round % 3 == 2) CHECK(epoll_wait(epoll, &event, 1, -1) == 1 && event.data.u64 == 77);
        CHECK(read(p[0], &got, 1) == 1 && got == round);
    }
    close(p[0]);
    CHECK(WTERMSIG(wait_for(pid)) == SIGPIPE);
    return suite_end();
}
