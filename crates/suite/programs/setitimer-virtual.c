/* ITIMER_VIRTUAL ticks as CPU time is used, not faster than real time. */
#include "suite.h"
static volatile sig_atomic_t ticks;
static void handler(int signal) {
    (void)signal;
    ticks++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGVTALRM, handler, SA_RESTART);
    struct itimerval every = {{0, 5000}, {0, 5000}}, none = {0}, rest;
    volatile unsigned work = 0;
    while (going_on()) {
        ticks = 0;
        long start = elapsed_ms();
        CHECK(setitimer(ITIMER_VIRTUAL, &every, NULL) == 0);
        while (ticks < 5) {
            for (int i = 0; i < 10000; i++) work += i;
            CHECK(elapsed_ms() - start < 20000);
        }
        CHECK(getitimer(ITIMER_VIRTUAL, &rest) == 0 && rest.it_interval.tv_usec == 5000);
        CHECK(setitimer(ITIMER_VIRTUAL, &none, NULL) == 0);
        CHECK(elapsed_ms() - start >= 10);
    }
    return suite_end();
}
