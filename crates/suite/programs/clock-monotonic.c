/* Monotonic clocks never go back and never jump far, by the vDSO and by the call itself. */
#include "suite.h"
static long long now(clockid_t clock, int raw) {
    struct timespec t;
    CHECK((raw ? syscall(SYS_clock_gettime, clock, &t) : clock_gettime(clock, &t)) == 0);
    CHECK(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE};
    long long last[4];
    for (int i = 0; i < 4; i++) last[i] = now(clocks[i], 0);
    for (unsigned round = 0; going_on(); round++) {
        for (int i = 0; i < 4; i++) {
            long long t = now(clocks[i], round % 16 == 0 && i < 3);
            CHECK(t >= last[i] && t - last[i] < 30000000000ll);
            last[i] = t;
        }
        long long coarse = now(CLOCK_MONOTONIC_COARSE, 0), fine = now(CLOCK_MONOTONIC, 0);
        CHECK(fine >= coarse && fine - coarse < 5000000000ll);
        struct timespec resolution;
        CHECK(clock_getres(CLOCK_MONOTONIC, &resolution) == 0 && resolution.tv_sec == 0 && resolution.tv_nsec > 0);
    }
    return suite_end();
}
