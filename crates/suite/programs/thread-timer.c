/* POSIX timers that signal a given thread (SIGEV_THREAD_ID): each thread gets its own timer's, with its value. */
// suite: flags -pthread
#include "threads.h"
static __thread volatile int came, wrong;
static __thread int me;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    if (info->si_code == SI_TIMER && info->si_value.sival_int == me) came++;
    else wrong++;
}
static void *work(void *number) {
    me = (int)(long)number + 1;
    volatile unsigned sum = 0;
    do {
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_int = me};
        event._sigev_un._tid = gettid();
        struct itimerspec when = {{0, 2000000}, {0, 1000000 * me}};
        came = 0;
        CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &when, NULL) == 0);
        while (came < 3) {
            if (me % 2) sleep_ms(1);
            else sum++;
        }
        CHECK(timer_delete(timer) == 0 && wrong == 0);
    } while (!stopped());
    return (void *)(long)me;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGRTMIN + 2, handler, SA_RESTART);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(work, i);
    while (going_on()) {
        sleep_ms(2);
        CHECK(came == 0 && wrong == 0);
    }
    stop_all();
    for (int i = 0; i < 4; i++) CHECK(join(threads[i]) == i + 1);
    return suite_end();
}
