/* A mutex with priority inheritance (FUTEX_LOCK_PI): exclusive, counted, EBUSY and EDEADLK, and its timeout. */
// suite: flags -pthread
#include "threads.h"
static pthread_mutex_t lock, checked;
static long counter, inside;
static void *work(void *unused) {
    (void)unused;
    long mine = 0;
    for (volatile unsigned sum = 0; !stopped(); mine++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        CHECK(inside++ == 0);
        for (int i = 0; i < 500; i++) sum += i;
        counter++;
        CHECK(--inside == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
        for (int i = 0; i < 1000; i++) sum += i;
    }
    return (void *)mine;
}
static void *refused(void *unused) {
    (void)unused;
    struct timespec until = in_ms(CLOCK_REALTIME, 3);
    CHECK(pthread_mutex_trylock(&checked) == EBUSY);
    CHECK(pthread_mutex_timedlock(&checked, &until) == ETIMEDOUT);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_mutexattr_t kind;
    CHECK(pthread_mutexattr_init(&kind) == 0 && pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&lock, &kind) == 0);
    CHECK(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK) == 0 && pthread_mutex_init(&checked, &kind) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    while (going_on()) {
        CHECK(pthread_mutex_lock(&checked) == 0 && pthread_mutex_lock(&checked) == EDEADLK);
        CHECK(join(start(refused, 0)) == 0);
        CHECK(pthread_mutex_unlock(&checked) == 0);
        sleep_ms(2);
    }
    stop_all();
    long all = 0;
    for (int i = 0; i < 3; i++) all += join(threads[i]);
    CHECK(counter == all && pthread_mutex_trylock(&lock) == 0);
    return suite_end();
}
