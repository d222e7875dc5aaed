/* Memory shared by parent and two children (MAP_SHARED, MAP_ANONYMOUS): atomic counts, a futex between processes. */
// suite: may stay: memory shared with other processes
#include "suite.h"
#include <linux/futex.h>
static struct shared {
    uint32_t turn, stop, total;
    unsigned char data[50000];
} *shared;
static void await(uint32_t want) {
    for (;;) {
        uint32_t now = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
        if (now == want || shared->stop) return;
        struct timespec limit = {0, 20000000};
        syscall(SYS_futex, &shared->turn, FUTEX_WAIT, now, &limit);
    }
}
static void give(uint32_t to) {
    __atomic_store_n(&shared->turn, to, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &shared->turn, FUTEX_WAKE, INT_MAX);
}
static void work(uint32_t me) {
    for (unsigned round = 0;; round++) {
        await(me);
        if (__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) _exit(30 + me);
        CHECK(filled(shared->data, sizeof shared->data, round * 3 + me - 1));
        fill(shared->data, sizeof shared->data, round * 3 + me);
        __atomic_add_fetch(&shared->total, me, __ATOMIC_SEQ_CST);
        give((me + 1) % 3);
    }
}
static void first(void) { work(1); }
static void second(void) { work(2); }
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t one = partner(first), two = partner(second);
    unsigned round = 0;
    for (; going_on(); round++) {
        fill(shared->data, sizeof shared->data, round * 3);
        give(1);
        await(0);
        CHECK(filled(shared->data, sizeof shared->data, round * 3 + 2) && shared->total == (round + 1) * 3);
        sleep_ms(1);
    }
    __atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
    give(9);
    CHECK(WEXITSTATUS(wait_for(one)) == 31 && WEXITSTATUS(wait_for(two)) == 32);
    return suite_end();
}
