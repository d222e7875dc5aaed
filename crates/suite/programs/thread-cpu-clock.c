/* CPU clocks of threads: by their own and by others never backwards, and one that works gets on. */
// suite: flags -pthread
// suite: known limit: CPU time spent abroad is not added to home's clocks after the return
#include "threads.h"
static int counted[2];
static long us(clockid_t clock) {
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
static void *work(void *number) {
    volatile unsigned sum = 0;
    for (long last = 0; !stopped();) {
        for (int i = 0; i < 100000; i++) sum += i;
        long now = us(CLOCK_THREAD_CPUTIME_ID);
        CHECK(now >= last);
        last = now;
        __atomic_add_fetch(&counted[(long)number], 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[2];
    clockid_t clocks[2], self;
    long first[2], last[2], process = 0;
    CHECK(pthread_getcpuclockid(pthread_self(), &self) == 0);
    for (int i = 0; i < 2; i++) {
        threads[i] = start(work, i);
        CHECK(pthread_getcpuclockid(threads[i], &clocks[i]) == 0);
        first[i] = last[i] = us(clocks[i]);
    }
    while (going_on()) {
        for (int i = 0; i < 2; i++) {
            long now = us(clocks[i]);
            CHECK(now >= last[i]);
            last[i] = now;
        }
        long now = us(CLOCK_PROCESS_CPUTIME_ID), mine = us(self);
        CHECK(now >= process && us(CLOCK_THREAD_CPUTIME_ID) >= mine);
        process = now;
        sleep_ms(1);
    }
    for (int i = 0; i < 2; i++)
        for (int n = 0; us(clocks[i]) == first[i]; n++) {
            CHECK(n < 20000);
            sleep_ms(1);
        }
    stop_all();
    for (int i = 0; i < 2; i++) join(threads[i]);
    return suite_end();
}
