/* Queued signals to given threads: each thread gets exactly its own, in order, with their values. */
// suite: flags -pthread
#include "threads.h"
enum { COUNT = 4 };
static __thread long came, me = -1;
static long got[COUNT];
static sem_t ready;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    CHECK(me >= 0 && info->si_value.sival_int == me * 1000000 + came % 1000000 && info->si_pid == getpid());
    __atomic_store_n(&got[me], ++came, __ATOMIC_SEQ_CST);
}
static void *work(void *number) {
    me = (long)number;
    CHECK(sem_post(&ready) == 0);
    volatile double sum = 0;
    while (!stopped()) {
        sum = 0;
        for (int i = 1; i <= 500; i++) sum += 1.0 / i;
        CHECK(sum > 6.792 && sum < 6.793);
        if (me % 2) sleep_ms(1);
    }
    return (void *)came;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGRTMIN + 3, handler, SA_RESTART);
    CHECK(sem_init(&ready, 0, 0) == 0);
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) threads[i] = start(work, i);
    for (int i = 0; i < COUNT; i++)
        while (sem_wait(&ready) < 0) CHECK(errno == EINTR);
    int sent = 0;
    while (going_on()) {
        for (int n = 0; n < 10; n++, sent++)
            for (int i = 0; i < COUNT; i++) {
                union sigval value = {.sival_int = i * 1000000 + sent % 1000000};
                CHECK(pthread_sigqueue(threads[i], SIGRTMIN + 3, value) == 0);
            }
        for (int i = 0; i < COUNT; i++)
            for (int n = 0; __atomic_load_n(&got[i], __ATOMIC_SEQ_CST) != sent; n++) {
                CHECK(n < 20000);
                sleep_ms(1);
            }
    }
    stop_all();
    for (int i = 0; i < COUNT; i++) CHECK(join(threads[i]) == sent);
    return suite_end();
}
