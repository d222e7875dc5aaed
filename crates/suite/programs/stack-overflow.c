/* A stack overflow is caught on the alternative stack, again and again. */
#include "suite.h"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
static sigjmp_buf out;
static char alternative[65536];
static volatile int caught;
static void handler(int signal) {
    (void)signal;
    caught++;
    siglongjmp(out, 1);
}
static __attribute__((noinline)) int deeper(volatile int n) {
    volatile char room[2000];
    room[n % 2000] = n;
    return deeper(n + 1) + room[(n + 1) % 2000];
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    stack_t stack = {.ss_sp = alternative, .ss_size = sizeof alternative};
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0 && sigaltstack(&stack, NULL) == 0);
    on(SIGSEGV, handler, SA_ONSTACK);
    for (volatile int round = 1; going_on(); round++) {
        if (sigsetjmp(out, 1) == 0) deeper(1);
        CHECK(caught == round);
    }
    return suite_end();
}
