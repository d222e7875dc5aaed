/* signalfd reads blocked signals with their sender and value. */
#include "suite.h"
#include <sys/signalfd.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 2);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct signalfd_siginfo got[8];
    for (int round = 0; going_on(); round++) {
        CHECK_ERROR(read(fd, got, sizeof got), EAGAIN);
        CHECK(kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR1) == 0);
        for (int i = 0; i < 3; i++) CHECK(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = round + i}) == 0);
        struct pollfd wait = {fd, POLLIN, 0};
        CHECK(poll(&wait, 1, -1) == 1);
        CHECK(read(fd, got, sizeof got) == 4 * sizeof got[0]);
        CHECK(got[0].ssi_signo == SIGUSR1 && got[0].ssi_pid == (uint32_t)getpid() && got[0].ssi_code == SI_USER);
        for (int i = 0; i < 3; i++) CHECK(got[i + 1].ssi_code == SI_QUEUE && got[i + 1].ssi_int == round + i);
    }
    return suite_end();
}
