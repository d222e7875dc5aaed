/* SIGKILL to oneself. */
// suite: ends signal 9
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    kill(getpid(), SIGKILL);
    return 0;
}
