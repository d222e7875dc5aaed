/* Every thread has its own signal mask, gets it from who made it, and keeps what is pending for itself. */
// suite: flags -pthread
#include "threads.h"
static __thread volatile int came;
static void handler(int signal) { came += signal == SIGUSR2 ? 1 : 100; }
static void check(const sigset_t *want) {
    sigset_t now;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    for (int s = 1; s < 65; s++) CHECK(s == 32 || s == 33 || sigismember(&now, s) == sigismember(want, s));
}
static void *child(void *want) {
    sigset_t pending;
    check(want);
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR2));
    return NULL;
}
static void *work(void *number) {
    sigset_t set, pending, one;
    for (int round = 1; !stopped(); round++) {
        sigemptyset(&set);
        sigemptyset(&one);
        sigaddset(&set, SIGUSR2);
        sigaddset(&one, SIGUSR2);
        for (int i = 0; i < 5; i++) sigaddset(&set, 34 + ((long)number * 7 + round * 3 + i * 5) % 30);
        CHECK(pthread_sigmask(SIG_SETMASK, &set, NULL) == 0);
        CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0 && pthread_kill(pthread_self(), SIGUSR2) == 0);
        CHECK(came == round - 1 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2));
        pthread_t other;
        CHECK(pthread_create(&other, NULL, child, &set) == 0 && join(other) == 0);
        check(&set);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0 && came == round);
        CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR2));
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR2, handler, SA_RESTART);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    sigset_t none;
    sigemptyset(&none);
    while (going_on()) {
        check(&none);
        CHECK(came == 0);
        sleep_ms(1);
    }
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
