/* A thread that fetches the process's signals by sigwait while all others block them; queued ones come in order. */
// suite: flags -pthread
#include "threads.h"
static sigset_t set;
static long handled[2];
static void *fetch(void *unused) {
    (void)unused;
    for (long next = 0;;) {
        siginfo_t info;
        int signal = sigwaitinfo(&set, &info);
        if (signal < 0) {
            CHECK(errno == EINTR);
            continue;
        }
        if (signal == SIGTERM) return (void *)next;
        if (signal == SIGUSR1) {
            __atomic_add_fetch(&handled[0], 1, __ATOMIC_SEQ_CST);
            continue;
        }
        CHECK(signal == SIGRTMIN + 1 && info.si_value.sival_int == next && info.si_code == SI_QUEUE);
        __atomic_store_n(&handled[1], ++next, __ATOMIC_SEQ_CST);
    }
}
static void *compute(void *unused) {
    (void)unused;
    unsigned char data[5000];
    for (unsigned round = 0; !stopped(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    return NULL;
}
static void await(long *value, long want) {
    for (int n = 0; __atomic_load_n(value, __ATOMIC_SEQ_CST) != want; n++) {
        CHECK(n < 20000);
        sleep_ms(1);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    pthread_t fetcher = start(fetch, 0), worker = start(compute, 0);
    long sent = 0, singles = 0;
    while (going_on()) {
        for (int i = 0; i < 5; i++)
            CHECK(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = sent + i}) == 0);
        sent += 5;
        CHECK(kill(getpid(), SIGUSR1) == 0);
        singles++;
        await(&handled[1], sent);
        await(&handled[0], singles);
    }
    CHECK(kill(getpid(), SIGTERM) == 0 && join(fetcher) == sent);
    stop_all();
    join(worker);
    return suite_end();
}
