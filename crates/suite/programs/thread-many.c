/* A hundred threads at once, on small stacks: all wait for a start, work, and give their part of a sum. */
// suite: flags -pthread
#include "threads.h"
enum { COUNT = 100 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int round_now, ready;
static void *work(void *number) {
    unsigned char data[500];
    long done = 0;
    for (int seen = 0;; done++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        if (++ready == COUNT + 1) CHECK(pthread_cond_broadcast(&changed) == 0);
        while (round_now == seen) CHECK(pthread_cond_wait(&changed, &lock) == 0);
        seen = round_now;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        if (stopped()) return (void *)(done * (long)number);
        fill(data, sizeof data, (long)number + seen);
        CHECK(filled(data, sizeof data, (long)number + seen));
    }
}
static void next_round(int last) {
    CHECK(pthread_mutex_lock(&lock) == 0);
    ready++;
    while (ready < COUNT + 1) CHECK(pthread_cond_wait(&changed, &lock) == 0);
    ready = 0;
    if (last) stop_all();
    round_now++;
    CHECK(pthread_cond_broadcast(&changed) == 0 && pthread_mutex_unlock(&lock) == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static pthread_t threads[COUNT];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    for (long i = 0; i < COUNT; i++) CHECK(pthread_create(&threads[i], &small, work, (void *)i) == 0);
    long rounds = 0, sum = 0;
    for (; going_on(); rounds++) next_round(0);
    next_round(1);
    for (int i = 0; i < COUNT; i++) sum += join(threads[i]);
    CHECK(sum == rounds * COUNT * (COUNT - 1) / 2);
    return suite_end();
}
