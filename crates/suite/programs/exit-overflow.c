/* A stack that overflows without a handler ends the process with SIGSEGV. */
// suite: ends signal 11
#include "suite.h"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
static __attribute__((noinline)) int deeper(volatile int n) {
    volatile char room[4096];
    room[n % 4096] = n;
    return deeper(n + 1) + room[(n + 1) % 4096];
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[10000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    suite_end();
    struct rlimit limit = {1 << 20, 1 << 20};
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    return deeper(1);
}
