/* Raw FUTEX_WAIT with a relative limit, in a loop of three threads: woken, for nothing perhaps, or ETIMEDOUT, and no wake is lost. */
// suite: flags -pthread
#include "threads.h"
#include <linux/futex.h>
static uint32_t words[3];
static unsigned expired;
static void *wait_on(void *number) {
    uint32_t *word = &words[(long)number], seen = 0;
    while (!stopped()) {
        struct timespec limit = {0, 3000000};
        long result = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit);
        CHECK(result == 0 || errno == ETIMEDOUT || errno == EAGAIN || errno == EINTR);
        if (result < 0 && errno == ETIMEDOUT) __atomic_add_fetch(&expired, 1, __ATOMIC_SEQ_CST);
        uint32_t now = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        CHECK(now - seen <= 1);
        if (now == seen) continue;
        seen = now;
        __atomic_store_n(word, seen + 1, __ATOMIC_SEQ_CST);
        seen++;
    }
    return (void *)(long)seen;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(wait_on, i);
    uint32_t rounds = 0;
    for (; going_on(); rounds++) {
        for (int i = 0; i < 3; i++) {
            __atomic_store_n(&words[i], rounds * 2 + 1, __ATOMIC_SEQ_CST);
            CHECK(syscall(SYS_futex, &words[i], FUTEX_WAKE_PRIVATE, 1) <= 1);
        }
        for (int i = 0; i < 3; i++)
            for (int n = 0; __atomic_load_n(&words[i], __ATOMIC_SEQ_CST) != rounds * 2 + 2; n++) {
                CHECK(n < 20000);
                sleep_ms(1);
            }
        if (rounds % 3 == 0) sleep_ms(7);
    }
    for (int n = 0; __atomic_load_n(&expired, __ATOMIC_SEQ_CST) == 0; n++) {
        CHECK(n < 20000);
        sleep_ms(1);
    }
    stop_all();
    for (int i = 0; i < 3; i++) CHECK(join(threads[i]) == rounds * 2);
    return suite_end();
}
