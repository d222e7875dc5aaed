/* Killed by a signal of its own without a handler: the status says which. */
// suite: ends signal 15
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    kill(getpid(), SIGTERM);
    return 0;
}
