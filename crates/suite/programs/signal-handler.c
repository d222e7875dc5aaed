/* Handlers run once for each signal, at once when it is one's own, and see their number. */
#include "suite.h"
static volatile sig_atomic_t last, count;
static void handler(int signal) {
    last = signal;
    count++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int signals[] = {SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGTERM, SIGURG, SIGIO, SIGCONT, SIGWINCH, SIGSYS, SIGXCPU, SIGRTMAX};
    int n = sizeof signals / sizeof *signals;
    for (int i = 0; i < n; i++) on(signals[i], handler, i % 2 ? SA_RESTART : 0);
    for (int round = 0; going_on(); round++) {
        for (int i = 0; i < n; i++) {
            count = 0;
            CHECK((i % 3 ? kill(getpid(), signals[i]) : raise(signals[i])) == 0);
            CHECK(last == signals[i] && count == 1);
        }
    }
    struct sigaction now;
    CHECK(sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == handler && (now.sa_flags & SA_RESTART));
    return suite_end();
}
