/* exit_group by hand: nothing is flushed. */
// suite: ends exit 52
#include "suite.h"

int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    printf("never seen");
    syscall(SYS_exit_group, 0x1234);
    return 0;
}
