/* Real-time signals queue: lowest number first, each with its value, in the order sent. */
#include "suite.h"
static volatile int got[300], values[300], count;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)context;
    CHECK(count < 300);
    got[count] = signal;
    values[count++] = info->si_value.sival_int;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigset_t set, old;
    sigemptyset(&set);
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = handler;
    for (int i = 0; i < 3; i++) sigaddset(&set, SIGRTMIN + i);
    action.sa_mask = set;
    for (int i = 0; i < 3; i++) CHECK(sigaction(SIGRTMIN + i, &action, NULL) == 0);
    for (int round = 0; going_on(); round++) {
        CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
        for (int i = 0; i < 60; i++) CHECK(sigqueue(getpid(), SIGRTMIN + (i + round) % 3, (union sigval){.sival_int = i}) == 0);
        count = 0;
        CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && count == 60);
        for (int i = 1; i < 60; i++) {
            CHECK(got[i] >= got[i - 1]);
            if (got[i] == got[i - 1]) CHECK(values[i] == values[i - 1] + 3);
        }
    }
    return suite_end();
}
