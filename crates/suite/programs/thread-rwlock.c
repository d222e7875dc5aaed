/* Read-write locks: readers are together and see whole states, a writer is alone. */
// suite: flags -pthread
#include "threads.h"
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static unsigned long state[64];
static int readers, writers;
static void *look(void *unused) {
    (void)unused;
    for (unsigned long last = 0; !stopped();) {
        CHECK(pthread_rwlock_rdlock(&lock) == 0);
        __atomic_add_fetch(&readers, 1, __ATOMIC_SEQ_CST);
        CHECK(__atomic_load_n(&writers, __ATOMIC_SEQ_CST) == 0 && state[0] >= last);
        for (int i = 1; i < 64; i++) CHECK(state[i] == state[0] * (i + 1));
        last = state[0];
        __atomic_sub_fetch(&readers, 1, __ATOMIC_SEQ_CST);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
    }
    return NULL;
}
static void change(void) {
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    CHECK(__atomic_add_fetch(&writers, 1, __ATOMIC_SEQ_CST) == 1 && __atomic_load_n(&readers, __ATOMIC_SEQ_CST) == 0);
    state[0]++;
    for (int i = 1; i < 64; i++) state[i] = state[0] * (i + 1);
    __atomic_sub_fetch(&writers, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
}
static void *write_some(void *unused) {
    (void)unused;
    long count = 0;
    for (; !stopped(); count++) change(), sleep_ms(1);
    return (void *)count;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(i < 3 ? look : write_some, i);
    unsigned long mine = 0;
    for (; going_on(); mine++) change(), sleep_ms(1);
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    unsigned long others = join(threads[3]);
    CHECK(state[0] == mine + others && pthread_rwlock_destroy(&lock) == 0);
    return suite_end();
}
