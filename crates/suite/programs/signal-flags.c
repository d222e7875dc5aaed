/* SA_RESETHAND acts once, SA_NODEFER lets a signal into its own handler, without it it waits. */
#include "suite.h"
static volatile sig_atomic_t depth, deepest, count;
static void handler(int signal) {
    count++;
    if (++depth > deepest) deepest = depth;
    if (count < 3) raise(signal);
    depth--;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        struct sigaction now;
        on(SIGUSR1, handler, SA_NODEFER);
        count = deepest = 0;
        CHECK(raise(SIGUSR1) == 0 && count == 3 && deepest == 3);
        on(SIGUSR1, handler, 0);
        count = deepest = 0;
        CHECK(raise(SIGUSR1) == 0 && count == 3 && deepest == 1);
        on(SIGURG, handler, SA_RESETHAND);
        count = 5;
        CHECK(raise(SIGURG) == 0 && raise(SIGURG) == 0 && count == 6);
        CHECK(sigaction(SIGURG, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
        CHECK(raise(SIGCHLD) == 0 && raise(SIGWINCH) == 0 && raise(SIGCONT) == 0);
        on(SIGTERM, SIG_IGN, 0);
        CHECK(raise(SIGTERM) == 0 && kill(getpid(), SIGTERM) == 0);
        CHECK_ERROR(sigaction(SIGKILL, &now, NULL), EINVAL);
    }
    return suite_end();
}
