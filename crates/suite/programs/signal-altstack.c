/* sigaltstack: handlers with SA_ONSTACK run there, others do not; it can't be changed while in use. */
#include "suite.h"
static char *stack;
static volatile sig_atomic_t there, elsewhere;
static void handler(int signal) {
    char here;
    if (&here >= stack && &here < stack + 65536) there++;
    else elsewhere++;
    if (signal == SIGUSR1) {
        stack_t now, other = {.ss_sp = stack, .ss_size = 32768};
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK);
        CHECK_ERROR(sigaltstack(&other, NULL), EPERM);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    stack = malloc(65536);
    stack_t mine = {.ss_sp = stack, .ss_size = 65536}, now, off = {.ss_flags = SS_DISABLE};
    CHECK(stack);
    on(SIGUSR1, handler, SA_ONSTACK);
    on(SIGUSR2, handler, 0);
    for (int round = 1; going_on(); round++) {
        CHECK(sigaltstack(&mine, NULL) == 0);
        CHECK(raise(SIGUSR1) == 0 && there == round && elsewhere == round - 1);
        CHECK(raise(SIGUSR2) == 0 && there == round && elsewhere == round);
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack && now.ss_size == 65536 && now.ss_flags == 0);
        CHECK(sigaltstack(&off, NULL) == 0 && sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_DISABLE);
    }
    return suite_end();
}
