/* A partner kills the program while it computes. */
// suite: ends signal 2
#include "suite.h"
static void body(void) {
    sleep_ms(suite_ms / 2);
    kill(getppid(), SIGINT);
    pause();
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    suite_ms *= 2;
    partner(body);
    static unsigned char data[10000];
    say("computing\n");
    for (unsigned round = 0; elapsed_ms() < 60000; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    say("not killed\n");
    return 0;
}
