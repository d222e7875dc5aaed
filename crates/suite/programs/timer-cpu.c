/* A timer on the process's CPU clock: no sooner than the CPU time was used. */
// suite: may stay: a timer on its CPU clock
#include "suite.h"
static volatile sig_atomic_t fired;
static void handler(int signal) {
    (void)signal;
    fired = 1;
}
static long cpu_us(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR1, handler, 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
    while (going_on()) {
        struct itimerspec when = {{0, 0}, {0, 15000000}};
        fired = 0;
        long before = cpu_us(), start = elapsed_ms();
        CHECK(timer_settime(timer, 0, &when, NULL) == 0);
        while (!fired) CHECK(elapsed_ms() - start < 20000);
        CHECK(cpu_us() - before >= 10000);
    }
    return suite_end();
}
