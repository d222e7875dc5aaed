/* Twenty threads asleep, each with a time of its own, relative or absolute: none is early. */
// suite: flags -pthread
#include "threads.h"
static void *rest(void *number) {
    long ms = 1 + (long)number % 7;
    for (int i = 0; !stopped(); i++) {
        struct timespec until = in_ms(CLOCK_MONOTONIC, ms), length = {0, ms * 1000000};
        if (i % 2) CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
        else CHECK(nanosleep(&length, NULL) == 0);
        CHECK(!before(in_ms(CLOCK_MONOTONIC, 0), until));
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { COUNT = 20 };
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) threads[i] = start(rest, i);
    unsigned char data[30000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    stop_all();
    for (int i = 0; i < COUNT; i++) join(threads[i]);
    return suite_end();
}
