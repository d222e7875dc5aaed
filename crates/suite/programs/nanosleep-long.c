/* One long sleep, as most of the time of most programs: still right when it was moved in it. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    long start = elapsed_ms();
    struct timespec t = {suite_ms / 1000, suite_ms % 1000 * 1000000};
    CHECK(nanosleep(&t, NULL) == 0);
    long slept = elapsed_ms() - start;
    CHECK(slept >= suite_ms - 1 && slept < suite_ms + 20000);
    struct pollfd none = {-1, 0, 0};
    start = elapsed_ms();
    CHECK(poll(&none, 1, suite_ms) == 0 && elapsed_ms() - start >= suite_ms - 1);
    CHECK(going_on());
    return suite_end();
}
