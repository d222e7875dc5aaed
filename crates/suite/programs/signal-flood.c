/* A timer that fires faster than its handler can run: between two signals there is no time for anything else, and only the handler
 * itself can end that. It does so sooner or later, wherever it is. */
#include "suite.h"
static timer_t timer;
static volatile unsigned long came;
static volatile sig_atomic_t over;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)context;
    struct itimerspec never = {{0, 0}, {0, 0}};
    sigset_t waiting;
    CHECK(signal == SIGRTMIN + 5 && info->si_code == SI_TIMER);
    CHECK(sigpending(&waiting) == 0 && timer_getoverrun(timer) >= 0);
    came++;
    if (!going_on() && !over) {
        over = 1;
        CHECK(timer_settime(timer, 0, &never, NULL) == 0);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGRTMIN + 5, handler, SA_RESTART);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 5};
    struct itimerspec fast = {{0, 1000}, {0, 1000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &fast, NULL) == 0);
    while (!over) sleep_ms(1);
    CHECK(timer_delete(timer) == 0 && came > 0);
    return suite_end();
}
