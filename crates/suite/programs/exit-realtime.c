/* A real-time signal without a handler ends the process. */
// suite: ends signal 41
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    sigqueue(getpid(), SIGRTMIN + 7, (union sigval){0});
    return 0;
}
