/* Blocked signals wait, sigpending tells them, they come once when unblocked; the mask is kept. */
#include "suite.h"
static volatile sig_atomic_t usr1, usr2;
static void handler(int signal) {
    if (signal == SIGUSR1) usr1++;
    else usr2++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR1, handler, 0);
    on(SIGUSR2, handler, 0);
    sigset_t set, old, now;
    for (int round = 1; going_on(); round++) {
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGUSR2);
        CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0 && !sigismember(&old, SIGUSR1));
        for (int i = 0; i < 3; i++) CHECK(kill(getpid(), SIGUSR1) == 0);
        CHECK(sigpending(&now) == 0 && sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
        sleep_ms(2);
        CHECK(raise(SIGUSR2) == 0 && sigpending(&now) == 0 && sigismember(&now, SIGUSR2));
        CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && !sigismember(&now, SIGHUP));
        CHECK(usr1 == round - 1 && usr2 == round - 1);
        sigdelset(&set, SIGUSR2);
        CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0 && usr1 == round - 1 && usr2 == round);
        CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && usr1 == round);
        CHECK(sigpending(&now) == 0 && sigisemptyset(&now));
    }
    return suite_end();
}
