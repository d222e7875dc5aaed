/* Raw futexes: FUTEX_CMP_REQUEUE, FUTEX_WAKE_OP and bitsets move and wake waiters; all come through in the end. */
// suite: flags -pthread
#include "threads.h"
#include <linux/futex.h>
static uint32_t gate, queue, arrived, generation;
static void *wait_at(void *number) {
    uint32_t mine = 1u << (long)number;
    for (uint32_t seen = 0;; seen++) {
        while (__atomic_load_n(&gate, __ATOMIC_SEQ_CST) == seen) {
            long result = syscall(SYS_futex, &gate, FUTEX_WAIT_BITSET_PRIVATE, seen, NULL, NULL, mine);
            CHECK(result == 0 || errno == EAGAIN || errno == EINTR);
        }
        if (stopped()) return NULL;
        __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
    }
}
static long futex(uint32_t *word, int what, uint32_t value, long more, uint32_t *other, uint32_t third) {
    long result = syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, more, other, third);
    CHECK(result >= 0 && result <= 4);
    return result;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(wait_at, i);
    while (going_on()) {
        if (generation % 2) sleep_ms(1);
        CHECK_ERROR(syscall(SYS_futex, &gate, FUTEX_CMP_REQUEUE_PRIVATE, 1, 9L, &queue, generation + 1), EAGAIN);
        futex(&gate, FUTEX_CMP_REQUEUE, 1, 2, &queue, generation);
        arrived = 0;
        __atomic_store_n(&gate, ++generation, __ATOMIC_SEQ_CST);
        futex(&gate, FUTEX_WAKE_BITSET, 9, 0, NULL, 1);
        futex(&gate, FUTEX_WAKE_BITSET, 9, 0, NULL, 6);
        for (int n = 0; __atomic_load_n(&arrived, __ATOMIC_SEQ_CST) != 4; n++) {
            CHECK(n < 20000);
            uint32_t before = queue;
            futex(&gate, FUTEX_WAKE_OP, 9, 9, &queue, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_GE, 0));
            CHECK(queue == before + 3);
            if (n > 3) sleep_ms(1);
        }
    }
    stop_all();
    __atomic_store_n(&gate, generation + 1, __ATOMIC_SEQ_CST);
    futex(&queue, FUTEX_WAKE, 9, 0, NULL, 0);
    futex(&gate, FUTEX_WAKE, 9, 0, NULL, 0);
    for (int i = 0; i < 4; i++) join(threads[i]);
    return suite_end();
}
