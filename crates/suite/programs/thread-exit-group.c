/* exit in a thread that is not the first, while others compute, sleep and read, ends all with its code. */
// suite: flags -pthread
// suite: ends exit 23
#include "threads.h"
static int p[2];
static void *work(void *number) {
    char byte;
    unsigned char data[5000];
    if ((long)number == 0) sleep(1000);
    if ((long)number == 1) CHECK(read(p[0], &byte, 1) == -2);
    for (unsigned round = 0;; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
}
static void *end(void *unused) {
    (void)unused;
    while (going_on()) sleep_ms(1);
    suite_end();
    exit(23);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(p) == 0);
    for (int i = 0; i < 4; i++) start(work, i);
    join(start(end, 0));
    return 1;
}
