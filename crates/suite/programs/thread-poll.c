/* Three threads poll the same pipe and read from it without blocking: each message comes to exactly one of them. */
// suite: flags -pthread
#include "threads.h"
static int p[2], end[2];
static long sums[3], counts[3];
static void *work(void *number) {
    long me = (long)number;
    struct pollfd fds[2] = {{p[0], POLLIN, 0}, {end[0], POLLIN, 0}};
    for (;;) {
        CHECK(poll(fds, 2, -1) > 0);
        uint32_t value;
        ssize_t got = read(p[0], &value, sizeof value);
        if (got == sizeof value) sums[me] += value, counts[me]++;
        else CHECK(got < 0 && errno == EAGAIN);
        if (got < 0 && fds[1].revents) return NULL;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe2(p, O_NONBLOCK) == 0 && pipe(end) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    long sum = 0, count = 0;
    for (uint32_t value = 0; going_on(); value++) {
        while (write(p[1], &value, sizeof value) < 0) {
            CHECK(errno == EAGAIN);
            sleep_ms(1);
        }
        sum += value;
        count++;
        if (value % 8 == 0) sleep_ms(1);
    }
    CHECK(write(end[1], "x", 1) == 1);
    for (int i = 0; i < 3; i++) {
        join(threads[i]);
        sum -= sums[i];
        count -= counts[i];
    }
    CHECK(sum == 0 && count == 0);
    return suite_end();
}
