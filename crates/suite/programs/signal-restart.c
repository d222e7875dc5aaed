/* A blocked read is restarted after an SA_RESTART handler and ends with EINTR after any other. */
#include "suite.h"
static int p[2];
static volatile sig_atomic_t restarts, ends;
static void restart(int signal) {
    (void)signal;
    restarts++;
}
static void end(int signal) {
    (void)signal;
    ends++;
}
static void body(void) {
    close(p[0]);
    for (;;) {
        sleep_ms(3);
        kill(getppid(), SIGUSR1);
        sleep_ms(4);
        if (write(p[1], "r", 1) != 1) return;
        sleep_ms(12);
        kill(getppid(), SIGUSR2);
        sleep_ms(9);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR1, restart, SA_RESTART);
    on(SIGUSR2, end, 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK(pipe(p) == 0);
    pid_t pid = partner(body);
    close(p[1]);
    char c;
    int reads = 0;
    while (going_on() || ends < 2 || restarts < 2) {
        int before = ends;
        ssize_t n = read(p[0], &c, 1);
        if (n == 1) CHECK(c == 'r' && ++reads);
        else CHECK(n == -1 && errno == EINTR && ends > before);
    }
    CHECK(restarts > 0 && reads > 0);
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
