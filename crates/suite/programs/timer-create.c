/* POSIX timers: a signal with a value, overruns, absolute time, the rest, many at once. */
#include "suite.h"
static volatile sig_atomic_t sum, count;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    if (info->si_code == SI_TIMER) {
        sum += info->si_value.sival_int;
        count++;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGRTMIN + 4, handler, SA_RESTART);
    while (going_on()) {
        timer_t timers[5];
        struct itimerspec rest, when = {{0, 0}, {0, 4000000}};
        sum = count = 0;
        for (int i = 0; i < 5; i++) {
            struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 4, .sigev_value.sival_int = 1 << i};
            CHECK(timer_create(CLOCK_MONOTONIC, &event, &timers[i]) == 0 && timer_settime(timers[i], 0, &when, NULL) == 0);
        }
        for (int i = 0; count < 5 && i < 10000; i++) sleep_ms(1);
        CHECK(count == 5 && sum == 31);
        struct itimerspec later = {{7, 0}, {1000, 0}};
        CHECK(timer_settime(timers[0], 0, &later, NULL) == 0 && timer_gettime(timers[0], &rest) == 0);
        CHECK(rest.it_value.tv_sec >= 990 && rest.it_interval.tv_sec == 7);
        struct itimerspec fast = {{0, 100000}, {0, 100000}};
        sigset_t set, old;
        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN + 4);
        CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0 && timer_settime(timers[1], 0, &fast, NULL) == 0);
        sleep_ms(5);
        CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && count >= 6 && timer_getoverrun(timers[1]) >= 0);
        for (int i = 0; i < 5; i++) CHECK(timer_delete(timers[i]) == 0);
        CHECK_ERROR(timer_delete(timers[0]), EINVAL);
    }
    return suite_end();
}
