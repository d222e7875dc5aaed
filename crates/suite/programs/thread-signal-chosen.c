/* Signals to the process go to the one thread that does not block them, which changes; blocked by all, they wait. */
// suite: flags -pthread
#include "threads.h"
static __thread int me;
static int chosen = -1, came, elsewhere;
static void handler(int signal) {
    (void)signal;
    if (__atomic_load_n(&chosen, __ATOMIC_SEQ_CST) != me) __atomic_add_fetch(&elsewhere, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&came, 1, __ATOMIC_SEQ_CST);
}
static void *work(void *number) {
    me = (int)(long)number;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (volatile unsigned sum = 0; !stopped();) {
        int open = 0;
        int mine = __atomic_load_n(&chosen, __ATOMIC_SEQ_CST);
        if (mine == me) {
            CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
            open = 1;
        }
        for (int i = 0; i < 3000; i++) sum += i;
        if (!open) {
            sleep_ms(1);
            continue;
        }
        for (int n = 0; __atomic_load_n(&came, __ATOMIC_SEQ_CST) < 1; n++) {
            CHECK(n < 20000);
            sleep_ms(1);
        }
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
        __atomic_store_n(&chosen, -1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    me = -2;
    on(SIGUSR1, handler, SA_RESTART);
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    for (int round = 0; going_on(); round++) {
        came = 0;
        if (round % 2) {
            CHECK(kill(getpid(), SIGUSR1) == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) && came == 0);
            __atomic_store_n(&chosen, round % 3, __ATOMIC_SEQ_CST);
        } else {
            __atomic_store_n(&chosen, round % 3, __ATOMIC_SEQ_CST);
            CHECK(kill(getpid(), SIGUSR1) == 0);
        }
        for (int n = 0; __atomic_load_n(&chosen, __ATOMIC_SEQ_CST) != -1; n++) {
            CHECK(n < 20000);
            sleep_ms(1);
        }
        CHECK(came == 1 && elsewhere == 0 && sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
    }
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
