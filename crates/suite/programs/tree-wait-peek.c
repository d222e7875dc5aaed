/* WNOWAIT again and again gives the same child; by pid, by group, by pidfd, all; then it is fetched once, with its usage. */
#include "suite.h"
#ifndef P_PIDFD
#define P_PIDFD 3
#endif
static void body(void) {
    volatile unsigned sum = 0;
    for (int i = 0; i < 200000; i++) sum += i;
    raise(SIGUSR2);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        pid_t pid = partner(body);
        int fd = syscall(SYS_pidfd_open, pid, 0), status;
        CHECK(fd >= 0);
        const struct {
            int kind;
            id_t id;
        } ways[4] = {{P_PID, pid}, {P_PIDFD, fd}, {P_ALL, 0}, {P_PGID, getpgrp()}};
        for (int i = 0; i < 8; i++) {
            siginfo_t info = {.si_pid = 0};
            CHECK(waitid(ways[i % 4].kind, ways[i % 4].id, &info, WEXITED | WNOWAIT) == 0);
            CHECK(info.si_pid == pid && info.si_signo == SIGCHLD && info.si_code == CLD_KILLED);
            CHECK(info.si_status == SIGUSR2 && info.si_uid == getuid());
        }
        struct pollfd ended = {fd, POLLIN, 0};
        CHECK(poll(&ended, 1, 0) == 1 && ended.revents & POLLIN);
        struct rusage usage = {.ru_maxrss = 0};
        CHECK(wait4(-1, &status, WNOHANG, &usage) == pid && WTERMSIG(status) == SIGUSR2 && usage.ru_maxrss > 0);
        CHECK(wait4(-1, &status, WNOHANG, NULL) == -1 && errno == ECHILD && close(fd) == 0);
    }
    return suite_end();
}
