/* sigsuspend and pause: the signal comes inside, the mask is back after. */
#include "suite.h"
static volatile sig_atomic_t count;
static void handler(int signal) {
    (void)signal;
    count++;
}
static void body(void) {
    for (;;) {
        sleep_ms(4);
        if (kill(getppid(), SIGUSR1) < 0) return;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigset_t block, open_mask, now;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &block, &open_mask) == 0);
    on(SIGUSR1, handler, 0);
    pid_t pid = partner(body);
    while (going_on()) {
        int before = count;
        CHECK_ERROR(sigsuspend(&open_mask), EINTR);
        CHECK(count == before + 1);
        CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
        volatile unsigned work = 0;
        while (work < 100000) work = work + 1;
        CHECK(count == before + 1);
    }
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
