/* The exit code reaches the parent; atexit functions run in reverse; buffered output is written. */
// suite: ends exit 42
#include "suite.h"
static void first(void) { puts("first"); }
static void second(void) { puts("second"); }
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    atexit(second);
    atexit(first);
    printf("buffered ");
    exit(42);
}
