/* pthread_exit from a deep call: cleanup handlers in reverse order, then the destructors of keys, then the result. */
// suite: flags -pthread
#include "threads.h"
static pthread_key_t keys[3];
static __thread char order[16];
static long destroyed;
static void append(void *letter) {
    size_t n = strlen(order);
    CHECK(n + 1 < sizeof order);
    order[n] = (char)(long)letter;
}
static void destroy(void *value) {
    CHECK(strcmp(order, "cba") == 0);
    __atomic_add_fetch(&destroyed, (long)value, __ATOMIC_SEQ_CST);
}
static void destroy_again(void *value) {
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_SEQ_CST);
    if ((long)value > 1) CHECK(pthread_setspecific(keys[2], (void *)((long)value - 1)) == 0);
}
static void leave(long number, int depth) {
    pthread_cleanup_push(append, (void *)(long)('a' + 2 - depth));
    if (depth > 0) leave(number, depth - 1);
    else if (number >= 0) pthread_exit((void *)(number * 3));
    pthread_cleanup_pop(0);
}
static void *work(void *number) {
    CHECK(pthread_setspecific(keys[0], (void *)10) == 0 && pthread_setspecific(keys[1], (void *)100) == 0);
    CHECK(pthread_setspecific(keys[2], (void *)3) == 0);
    pthread_cleanup_push(append, (void *)'x');
    pthread_cleanup_pop(1);
    CHECK(strcmp(order, "x") == 0);
    memset(order, 0, sizeof order);
    leave((long)number, 2);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int i = 0; i < 3; i++) CHECK(pthread_key_create(&keys[i], i < 2 ? destroy : destroy_again) == 0);
    while (going_on()) {
        pthread_t threads[5];
        destroyed = 0;
        for (int i = 0; i < 5; i++) threads[i] = start(work, i);
        for (int i = 0; i < 5; i++) CHECK(join(threads[i]) == i * 3);
        CHECK(destroyed == 5 * 113 && order[0] == 0);
    }
    return suite_end();
}
