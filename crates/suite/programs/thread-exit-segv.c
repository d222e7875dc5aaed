/* A fault of a thread that is not the first kills all; the status is the fault's. */
// suite: flags -pthread
// suite: ends signal 11
#include "threads.h"
static void *work(void *unused) {
    (void)unused;
    unsigned char data[5000];
    for (unsigned round = 0;; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
}
static void *fault(void *nowhere) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    while (going_on()) sleep_ms(1);
    suite_end();
    *(volatile char *)nowhere = 1;
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    start(work, 0);
    start(work, 1);
    join(start(fault, 16));
    return 1;
}
