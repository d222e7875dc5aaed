/* Nested handlers: sa_mask holds one signal back until the first handler is done, another comes inside it. */
#include "suite.h"
static volatile sig_atomic_t depth, order, runs, at[3];
static void held(int signal) {
    (void)signal;
    CHECK(depth == 0);
    at[1] = ++order;
}
static void inner(int signal) {
    (void)signal;
    CHECK(depth == 1);
    at[2] = ++order;
}
static void outer(int signal) {
    depth = 1;
    if (runs++ == 0) {
        CHECK(kill(getpid(), SIGUSR2) == 0 && raise(signal) == 0);
        sleep_ms(1);
        CHECK(order == 0 && raise(SIGHUP) == 0 && at[2] == 1);
        at[0] = ++order;
    }
    depth = 0;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct sigaction action = {.sa_handler = outer};
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    on(SIGUSR2, held, 0);
    on(SIGHUP, inner, 0);
    while (going_on()) {
        order = runs = 0;
        sigset_t now;
        CHECK(kill(getpid(), SIGUSR1) == 0);
        CHECK(runs == 2 && at[2] == 1 && at[0] == 2 && at[1] == 3 && depth == 0);
        CHECK(sigpending(&now) == 0 && sigisemptyset(&now));
    }
    return suite_end();
}
