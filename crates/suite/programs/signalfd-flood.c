/* A hundred thousand signals that wait for a signalfd: moving does not have the kernel look through them again and again.
 * They are those of a user of its own: who has so many leaves none to the others of his (RLIMIT_SIGPENDING counts users). */
#include "suite.h"
#include <grp.h>
#include <sys/signalfd.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int number = SIGRTMIN + 6;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(fd >= 0);
    if (getuid() == 0) {
        uid_t own = 61000 + getpid() % 1000;
        CHECK(setgroups(0, NULL) == 0 && setgid(own) == 0 && setuid(own) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    }
    unsigned sent = 0, read_so_far = 0;
    while (sent < 100000 && sigqueue(getpid(), number, (union sigval){.sival_int = (int)sent}) == 0) sent++;
    CHECK(sent > 0);
    while (going_on()) {
        struct signalfd_siginfo info;
        if (read_so_far < sent) CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_int == (int)read_so_far++);
        sleep_ms(1);
    }
    struct signalfd_siginfo rest[512];
    for (ssize_t got; (got = read(fd, rest, sizeof rest)) > 0;)
        for (size_t i = 0; i < got / sizeof rest[0]; i++) CHECK(rest[i].ssi_int == (int)read_so_far++);
    CHECK(read_so_far == sent);
    return suite_end();
}
