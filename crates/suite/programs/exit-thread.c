/* exit (not exit_group) of the only thread ends the process with its code. */
// suite: ends exit 17
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    syscall(SYS_exit, 17);
    return 0;
}
