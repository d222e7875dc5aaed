/* setjmp and longjmp over many frames, sigsetjmp with the mask, swapcontext between stacks. */
#include "suite.h"
static jmp_buf top;
static __attribute__((noinline)) void down(int depth, int value) {
    volatile char room[200];
    room[depth % 200] = depth;
    if (depth == 0) longjmp(top, value);
    down(depth - 1, value);
    CHECK(room[depth % 200] == (char)depth);
}
static ucontext_t home, away;
static volatile int turns;
static void coroutine(void) {
    for (;;) {
        turns++;
        CHECK(swapcontext(&away, &home) == 0);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char stack[65536];
    CHECK(getcontext(&away) == 0);
    away.uc_stack.ss_sp = stack;
    away.uc_stack.ss_size = sizeof stack;
    makecontext(&away, coroutine, 0);
    for (volatile int round = 1; going_on(); round++) {
        int got = setjmp(top);
        if (got == 0) down(100, round);
        CHECK(got == round);
        sigjmp_buf point;
        sigset_t set, now;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        if (sigsetjmp(point, 1) == 0) {
            CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
            siglongjmp(point, 1);
        }
        CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));
        for (int i = 0; i < 50; i++) CHECK(swapcontext(&home, &away) == 0);
        CHECK(turns == round * 50);
    }
    return suite_end();
}
