/* SIGALRM without a handler ends a sleeping process. */
// suite: ends signal 14
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    struct itimerval soon = {{0, 0}, {0, 100000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    for (;;) pause();
}
