/* Waits with a limit that expires, in several threads: condition, semaphore, mutex, rwlock; never early, and the lock is held after. */
// suite: flags -pthread
#include "threads.h"
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static void *by_condition(void *number) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    pthread_condattr_t clock;
    clockid_t id = (long)number ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    CHECK(pthread_condattr_init(&clock) == 0 && pthread_condattr_setclock(&clock, id) == 0);
    CHECK(pthread_cond_init(&never, &clock) == 0);
    while (!stopped()) {
        struct timespec until = in_ms(id, 4);
        int result;
        CHECK(pthread_mutex_lock(&lock) == 0);
        while ((result = pthread_cond_timedwait(&never, &lock, &until)) == 0) {
        }
        CHECK(result == ETIMEDOUT && pthread_mutex_trylock(&lock) == EBUSY && pthread_mutex_unlock(&lock) == 0);
        CHECK(!before(in_ms(id, 0), until));
    }
    return NULL;
}
static void *by_semaphore(void *unused) {
    (void)unused;
    sem_t empty;
    CHECK(sem_init(&empty, 0, 0) == 0);
    while (!stopped()) {
        struct timespec until = in_ms(CLOCK_REALTIME, 5);
        int result;
        while ((result = sem_timedwait(&empty, &until)) < 0 && errno == EINTR) {
        }
        CHECK(result < 0 && errno == ETIMEDOUT && !before(in_ms(CLOCK_REALTIME, 0), until));
    }
    return NULL;
}
static void *by_lock(void *unused) {
    (void)unused;
    while (!stopped()) {
        struct timespec until = in_ms(CLOCK_REALTIME, 3);
        CHECK(pthread_mutex_timedlock(&held, &until) == ETIMEDOUT && !before(in_ms(CLOCK_REALTIME, 0), until));
        CHECK(pthread_rwlock_timedrdlock(&written, &until) == ETIMEDOUT);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pthread_mutex_lock(&held) == 0 && pthread_rwlock_wrlock(&written) == 0);
    pthread_t threads[4] = {start(by_condition, 0), start(by_condition, 1), start(by_semaphore, 0), start(by_lock, 0)};
    for (volatile unsigned sum = 0; going_on();)
        for (int i = 0; i < 100000; i++) sum += i;
    stop_all();
    for (int i = 0; i < 4; i++) join(threads[i]);
    return suite_end();
}
