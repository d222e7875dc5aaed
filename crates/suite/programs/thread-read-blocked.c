/* Three threads blocked in read, each on its own pipe, two that compute, and the main one that feeds them in turn. */
// suite: flags -pthread
#include "threads.h"
static int pipes[3][2], backs[3][2];
static void *echo(void *number) {
    long me = (long)number, total = 0;
    static __thread unsigned char data[6000];
    for (;;) {
        uint32_t n;
        ssize_t got = read(pipes[me][0], &n, sizeof n);
        if (got == 0) return (void *)total;
        CHECK(got == sizeof n && n > 0 && n <= sizeof data);
        read_all(pipes[me][0], data, n);
        CHECK(filled(data, n, n + me));
        total += n;
        uint64_t sum = digest(data, n);
        write_all(backs[me][1], &sum, sizeof sum);
    }
}
static void *compute(void *number) {
    unsigned char data[20000];
    for (unsigned round = (long)number; !stopped(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[5];
    for (int i = 0; i < 3; i++) CHECK(pipe(pipes[i]) == 0 && pipe(backs[i]) == 0);
    for (int i = 0; i < 5; i++) threads[i] = start(i < 3 ? echo : compute, i);
    long totals[3] = {0};
    unsigned char data[6000];
    for (uint32_t round = 0; going_on(); round++) {
        int i = round % 3;
        uint32_t n = 1 + round * 977 % sizeof data;
        fill(data, n, n + i);
        write_all(pipes[i][1], &n, sizeof n);
        write_all(pipes[i][1], data, n);
        totals[i] += n;
        uint64_t sum;
        read_all(backs[i][0], &sum, sizeof sum);
        CHECK(sum == digest(data, n));
        if (round % 16 == 0) sleep_ms(3);
    }
    stop_all();
    for (int i = 0; i < 3; i++) CHECK(close(pipes[i][1]) == 0 && join(threads[i]) == totals[i]);
    for (int i = 3; i < 5; i++) join(threads[i]);
    return suite_end();
}
