/* A ring of four threads hands a token on by eventfds; two others add to one counter whose sum is right. */
// suite: flags -pthread
#include "threads.h"
#include <sys/eventfd.h>
static int ring[4], sums;
static void *pass(void *number) {
    long me = (long)number, passed = 0;
    for (;; passed++) {
        eventfd_t value;
        CHECK(eventfd_read(ring[me], &value) == 0);
        CHECK(eventfd_write(ring[(me + 1) % 4], value == 1000000 ? value : value + 1) == 0);
        if (value == 1000000) return (void *)passed;
    }
}
static void *add(void *number) {
    long sum = 0;
    for (long value = 1 + (long)number; !stopped(); value = value % 1000 + 1) {
        CHECK(eventfd_write(sums, value) == 0);
        sum += value;
        if (value % 16 == 0) sched_yield();
    }
    return (void *)sum;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int i = 0; i < 4; i++) CHECK((ring[i] = eventfd(0, 0)) >= 0);
    CHECK((sums = eventfd(0, EFD_NONBLOCK)) >= 0);
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) threads[i] = i < 3 ? start(pass, i + 1) : start(add, i);
    eventfd_t value;
    long sum = 0, rounds = 0;
    for (; going_on(); rounds++) {
        CHECK(eventfd_write(ring[1], 5) == 0 && eventfd_read(ring[0], &value) == 0 && value == 8);
        if (eventfd_read(sums, &value) == 0) sum += value;
        else CHECK(errno == EAGAIN);
    }
    stop_all();
    CHECK(eventfd_write(ring[1], 1000000) == 0);
    for (int i = 0; i < 3; i++) CHECK(join(threads[i]) == rounds);
    long added = join(threads[3]);
    added += join(threads[4]);
    if (eventfd_read(sums, &value) == 0) sum += value;
    CHECK(sum == added && eventfd_read(ring[0], &value) == 0 && value == 1000000);
    return suite_end();
}
