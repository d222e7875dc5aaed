/* sigwaitinfo, sigtimedwait and sigwait take blocked signals in order, with values; a timeout is EAGAIN. */
#include "suite.h"
static int gate[2];
static void body(void) {
    int number;
    close(gate[1]);
    while (read(gate[0], &number, sizeof number) == sizeof number) {
        sleep_ms(2 + number % 7);
        CHECK(sigqueue(getppid(), SIGRTMIN + 1, (union sigval){.sival_int = number}) == 0);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && pipe(gate) == 0);
    pid_t pid = partner(body);
    close(gate[0]);
    siginfo_t info;
    for (int round = 0; going_on(); round++) {
        CHECK(write(gate[1], &round, sizeof round) == sizeof round);
        CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 && info.si_pid == pid && info.si_value.sival_int == round);
        struct timespec limit = {0, 8000000};
        long before = elapsed_ms();
        CHECK_ERROR(sigtimedwait(&set, &info, &limit), EAGAIN);
        CHECK(elapsed_ms() - before >= 7);
        CHECK(kill(getpid(), SIGUSR1) == 0 && sigtimedwait(&set, &info, &limit) == SIGUSR1 && info.si_code == SI_USER);
        int got;
        CHECK(kill(getpid(), SIGUSR1) == 0 && sigwait(&set, &got) == 0 && got == SIGUSR1);
    }
    close(gate[1]);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
