/* Sleeps: never short; a handler ends them and the rest is told; absolute ones are on time. */
#include "suite.h"
static volatile sig_atomic_t rung;
static void handler(int signal) {
    (void)signal;
    rung++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGALRM, handler, SA_RESTART);
    while (going_on()) {
        long start = elapsed_ms();
        struct timespec t = {0, 11000000}, rest = {9, 9};
        CHECK(nanosleep(&t, &rest) == 0 && elapsed_ms() - start >= 10);
        /* Again and again, so that one which comes too early does no harm. */
        struct itimerval soon = {{0, 6000}, {0, 6000}}, never = {0};
        t = (struct timespec){30, 0};
        start = elapsed_ms();
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        CHECK_ERROR(nanosleep(&t, &rest), EINTR);
        long slept = elapsed_ms() - start, left = rest.tv_sec * 1000 + rest.tv_nsec / 1000000;
        CHECK(left < 30000 && left + slept >= 29990 && left + slept <= 35000);
        CHECK(clock_nanosleep(CLOCK_BOOTTIME, 0, &t, &rest) == EINTR && rest.tv_sec >= 20);
        CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
        CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
        struct timespec until = {t.tv_sec, t.tv_nsec + 9000000}, now;
        if (until.tv_nsec >= 1000000000) until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
        CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        CHECK(now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
        CHECK(usleep(2000) == 0);
    }
    return suite_end();
}
