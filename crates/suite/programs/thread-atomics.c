/* Threads that only compute and meet in atomic variables, without a system call: sums, exchange, Dekker's order. */
// suite: flags -pthread
#include "threads.h"
static unsigned long total, odd;
static int want[2], inside, passes;
static int enter(int me) {
    __atomic_store_n(&want[me], 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&want[!me], __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&want[me], 0, __ATOMIC_SEQ_CST);
        return 0;
    }
    return 1;
}
static void *dekker(void *number) {
    for (int me = (long)number; !stopped();) {
        if (!enter(me)) continue;
        CHECK(inside == 0);
        inside = me + 1;
        passes++;
        CHECK(inside == me + 1);
        inside = 0;
        __atomic_store_n(&want[me], 0, __ATOMIC_SEQ_CST);
    }
    return NULL;
}
static void *add(void *number) {
    unsigned long mine = 0, rounds = 0, old;
    for (; !stopped(); rounds++) {
        __atomic_add_fetch(&total, (long)number, __ATOMIC_RELAXED);
        old = __atomic_load_n(&odd, __ATOMIC_RELAXED);
        if (__atomic_compare_exchange_n(&odd, &old, old + 2, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) mine++;
        CHECK(old % 2 == 1);
    }
    __atomic_sub_fetch(&odd, 2 * mine, __ATOMIC_SEQ_CST);
    return (void *)(rounds * (long)number);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    odd = 1;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = i < 2 ? start(dekker, i) : start(add, i);
    while (going_on()) CHECK(__atomic_load_n(&odd, __ATOMIC_RELAXED) % 2 == 1);
    stop_all();
    CHECK(join(threads[0]) == 0 && join(threads[1]) == 0);
    unsigned long sum = join(threads[2]);
    sum += join(threads[3]);
    CHECK(sum == total && odd == 1 && inside == 0 && passes > 0);
    return suite_end();
}
