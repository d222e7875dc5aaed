/* Three children compute parts of a sum and send them by pipes, while the parent computes all of it. */
#include "suite.h"
static uint64_t part(unsigned from, unsigned to, unsigned seed) {
    uint64_t sum = 0;
    for (unsigned i = from; i < to; i++) sum += (uint64_t)(i ^ seed) * 2654435761u >> 7;
    return sum;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { COUNT = 3, N = 60000 };
    for (unsigned round = 0; going_on(); round++) {
        int p[COUNT][2];
        pid_t pids[COUNT];
        for (unsigned i = 0; i < COUNT; i++) {
            CHECK(pipe(p[i]) == 0 && (pids[i] = fork()) >= 0);
            if (pids[i] == 0) {
                for (unsigned from = i * N; from < (i + 1) * N; from += N / 10) {
                    uint64_t sum = part(from, from + N / 10, round);
                    write_all(p[i][1], &sum, sizeof sum);
                }
                _exit(40 + i);
            }
            close(p[i][1]);
        }
        uint64_t sum = 0, want = part(0, COUNT * N, round), got;
        for (unsigned i = 0; i < COUNT; i++) {
            for (int k = 0; k < 10; k++) {
                read_all(p[i][0], &got, sizeof got);
                sum += got;
            }
            CHECK(read(p[i][0], &got, 1) == 0 && close(p[i][0]) == 0);
        }
        CHECK(sum == want);
        for (unsigned i = 0; i < COUNT; i++) CHECK(WEXITSTATUS(wait_for(pids[i])) == 40 + (int)i);
        sleep_ms(3);
    }
    return suite_end();
}
