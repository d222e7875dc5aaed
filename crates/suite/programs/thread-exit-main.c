/* main returns while its threads compute and wait: all end, with main's code. */
// suite: flags -pthread
// suite: ends exit 19
#include "threads.h"
static void *work(void *number) {
    unsigned char data[5000];
    for (unsigned round = 0;; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
        if ((long)number == 0) pause();
        if ((long)number == 1) sleep_ms(1);
    }
}
static void farewell(void) { say("at exit\n"); }
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(atexit(farewell) == 0);
    for (int i = 0; i < 4; i++) start(work, i);
    while (going_on()) sleep_ms(1);
    suite_end();
    return 19;
}
