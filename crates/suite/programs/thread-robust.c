/* Robust mutexes whose owner ends: the next one hears of it (waiting already or not), repairs, and goes on. */
// suite: flags -pthread
#include "threads.h"
static pthread_mutex_t lock;
static sem_t locked;
static long value, twice;
static void *die(void *waits) {
    CHECK(pthread_mutex_lock(&lock) == 0);
    value++;
    CHECK(sem_post(&locked) == 0);
    if (waits) sleep_ms(3);
    pthread_exit(NULL);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_mutexattr_t robust;
    CHECK(pthread_mutexattr_init(&robust) == 0 && pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(&lock, &robust) == 0 && sem_init(&locked, 0, 0) == 0);
    for (int round = 0; going_on(); round++) {
        pthread_t thread = start(die, round % 2);
        while (sem_wait(&locked) < 0) CHECK(errno == EINTR);
        if (round % 4 == 0) join(thread);
        CHECK(pthread_mutex_lock(&lock) == EOWNERDEAD && value == twice + 1);
        twice = value;
        if (round % 5 == 4) {
            CHECK(pthread_mutex_unlock(&lock) == 0 && pthread_mutex_lock(&lock) == ENOTRECOVERABLE);
            CHECK(pthread_mutex_destroy(&lock) == 0 && pthread_mutex_init(&lock, &robust) == 0);
        } else {
            CHECK(pthread_mutex_consistent(&lock) == 0 && pthread_mutex_unlock(&lock) == 0);
            CHECK(pthread_mutex_lock(&lock) == 0 && pthread_mutex_unlock(&lock) == 0);
        }
        if (round % 4) join(thread);
    }
    return suite_end();
}
