/* time, gettimeofday, CLOCK_REALTIME, its coarse form and CLOCK_TAI agree. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    time_t first = time(NULL);
    CHECK(first > 1600000000);
    while (going_on()) {
        time_t a = time(NULL);
        struct timeval b;
        struct timespec c, coarse, tai;
        CHECK(gettimeofday(&b, NULL) == 0 && b.tv_usec >= 0 && b.tv_usec < 1000000);
        CHECK(clock_gettime(CLOCK_REALTIME, &c) == 0 && clock_gettime(CLOCK_REALTIME_COARSE, &coarse) == 0);
        CHECK(clock_gettime(CLOCK_TAI, &tai) == 0);
        CHECK(b.tv_sec >= a && b.tv_sec - a < 10 && c.tv_sec >= b.tv_sec && c.tv_sec - b.tv_sec < 10);
        CHECK(coarse.tv_sec - c.tv_sec < 10 && c.tv_sec - coarse.tv_sec < 2);
        CHECK(tai.tv_sec >= c.tv_sec && tai.tv_sec - c.tv_sec < 100 && a - first < 100);
    }
    return suite_end();
}
