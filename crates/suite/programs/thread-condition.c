/* Condition variables: two producers, two consumers, a ring of eight; every number comes out once, in its producer's order. */
// suite: flags -pthread
#include "threads.h"
enum { RING = 8 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled_one = PTHREAD_COND_INITIALIZER, emptied_one = PTHREAD_COND_INITIALIZER;
static long ring[RING], put, taken, produced[2], sum_in, sum_out, last[2] = {-1, -1};
static int producers = 2;
static void *produce(void *number) {
    long me = (long)number, n = 0;
    for (; !stopped(); n++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (put - taken == RING) CHECK(pthread_cond_wait(&emptied_one, &lock) == 0);
        ring[put++ % RING] = n * 2 + me;
        sum_in += n * 2 + me;
        CHECK(pthread_cond_signal(&filled_one) == 0 && pthread_mutex_unlock(&lock) == 0);
    }
    CHECK(pthread_mutex_lock(&lock) == 0);
    produced[me] = n;
    producers--;
    CHECK(pthread_cond_broadcast(&filled_one) == 0 && pthread_mutex_unlock(&lock) == 0);
    return NULL;
}
static void *consume(void *unused) {
    (void)unused;
    for (volatile unsigned sum = 0;;) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        while (put == taken && producers) CHECK(pthread_cond_wait(&filled_one, &lock) == 0);
        if (put == taken) break;
        long value = ring[taken++ % RING];
        CHECK(last[value % 2] + 1 == value / 2);
        last[value % 2] = value / 2;
        sum_out += value;
        CHECK(pthread_cond_signal(&emptied_one) == 0 && pthread_mutex_unlock(&lock) == 0);
        for (int i = 0; i < 500; i++) sum += i;
    }
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(i < 2 ? produce : consume, i);
    while (going_on()) sleep_ms(2);
    stop_all();
    for (int i = 0; i < 4; i++) join(threads[i]);
    CHECK(put == taken && sum_in == sum_out && last[0] + 1 == produced[0] && last[1] + 1 == produced[1]);
    return suite_end();
}
