/* ITIMER_REAL: never early, the rest is told, one shot and interval. */
#include "suite.h"
static volatile sig_atomic_t ticks;
static void handler(int signal) {
    (void)signal;
    ticks++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGALRM, handler, SA_RESTART);
    while (going_on()) {
        struct itimerval every = {{0, 3000}, {0, 3000}}, none = {0}, rest;
        long start = elapsed_ms();
        ticks = 0;
        CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
        while (ticks < 10) CHECK(elapsed_ms() - start < 20000);
        CHECK(elapsed_ms() - start >= 29);
        CHECK(getitimer(ITIMER_REAL, &rest) == 0 && rest.it_interval.tv_usec == 3000 && rest.it_value.tv_sec == 0);
        CHECK(setitimer(ITIMER_REAL, &none, &rest) == 0 && rest.it_interval.tv_usec == 3000);
        ticks = 0;
        struct itimerval once = {{0, 0}, {0, 5000}};
        sigset_t block, open_mask;
        sigemptyset(&block);
        sigaddset(&block, SIGALRM);
        CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
        start = elapsed_ms();
        CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
        CHECK_ERROR(sigsuspend(&open_mask), EINTR);
        CHECK(ticks == 1 && elapsed_ms() - start >= 4);
        CHECK(sigprocmask(SIG_SETMASK, &open_mask, NULL) == 0 && ticks == 1);
        CHECK(getitimer(ITIMER_REAL, &rest) == 0 && rest.it_value.tv_usec == 0 && rest.it_value.tv_sec == 0);
    }
    return suite_end();
}
