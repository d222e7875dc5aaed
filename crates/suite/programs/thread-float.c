/* Floating point of each thread: x87 and SSE rounding and exceptions, long sums, and vector registers across calls. */
// suite: flags -pthread -lm
#include "threads.h"
#include <fenv.h>
static const int modes[4] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
static __attribute__((noinline)) double third(volatile double one) { return one / 3; }
static __attribute__((noinline)) long double long_third(volatile long double one) { return one / 3; }
static void *work(void *number) {
    long me = (long)number;
    int mode = modes[me % 4];
    CHECK(fegetround() == FE_TONEAREST);
    double near_it = third(me + 1);
    long double near_long = long_third(me + 1);
    CHECK(fesetround(mode) == 0);
    double mine = third(me + 1);
    long double mine_long = long_third(me + 1);
    CHECK(mine - near_it < 1e-9 && near_it - mine < 1e-9 && mine_long - near_long < 1e-9);
    if (mode == FE_DOWNWARD) CHECK(mine <= near_it && mine_long <= near_long);
    if (mode == FE_UPWARD) CHECK(mine >= near_it && mine_long >= near_long);
    while (!stopped()) {
        CHECK(feclearexcept(FE_ALL_EXCEPT) == 0 && !fetestexcept(FE_DIVBYZERO));
        volatile double zero = 0, result = 1 / zero;
        double vector[8], sum = 0;
        for (int i = 0; i < 8; i++) vector[i] = me * 100 + i;
        for (int n = 0; n < 200; n++)
            for (int i = 0; i < 8; i++) vector[i] += i + 1;
        if (me % 2) sched_yield();
        for (int i = 0; i < 8; i++) sum += vector[i];
        CHECK(sum == me * 800 + 28 + 200 * 36 && result > 1e300);
        CHECK(fetestexcept(FE_DIVBYZERO) && fegetround() == mode);
        CHECK(third(me + 1) == mine && long_third(me + 1) == mine_long);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(work, i);
    while (going_on()) {
        CHECK(fegetround() == FE_TONEAREST);
        sleep_ms(1);
    }
    stop_all();
    for (int i = 0; i < 4; i++) join(threads[i]);
    return suite_end();
}
