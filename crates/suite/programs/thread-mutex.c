/* Four computing threads and a counter behind a mutex: nobody is inside with another, no count is lost. */
// suite: flags -pthread
#include "threads.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counter, inside;
static void *work(void *number) {
    long mine = 0;
    volatile unsigned sum = 0;
    for (; !stopped(); mine++) {
        for (unsigned i = 0; i < 300 * ((unsigned)(long)number + 1); i++) sum += i ^ mine;
        CHECK(pthread_mutex_lock(&lock) == 0);
        CHECK(inside++ == 0);
        counter++;
        CHECK(--inside == 0);
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return (void *)mine;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(work, i);
    long mine = 0, all = 0, last = 0;
    for (; going_on(); mine++) {
        CHECK(pthread_mutex_lock(&lock) == 0 && inside == 0 && counter >= last);
        last = ++counter;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        sleep_ms(1);
    }
    stop_all();
    for (int i = 0; i < 4; i++) all += join(threads[i]);
    CHECK(counter == mine + all && pthread_mutex_trylock(&lock) == 0);
    return suite_end();
}
