/* SIGPIPE without a handler ends the process. */
// suite: ends signal 13
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    int p[2];
    CHECK(pipe(p) == 0 && close(p[0]) == 0);
    CHECK(write(p[1], "x", 1) == 1);
    return 0;
}
