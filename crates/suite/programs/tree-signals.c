/* Parent and child send each other queued signals with values in turn, and fetch or handle them: none is lost. */
#include "suite.h"
static sigset_t set;
static volatile int handled;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    handled = info->si_value.sival_int;
}
static void body(void) {
    for (int next = 1;; next++) {
        siginfo_t info;
        int signal;
        while ((signal = sigwaitinfo(&set, &info)) < 0) CHECK(errno == EINTR);
        if (signal == SIGTERM) _exit(next % 100);
        CHECK(info.si_pid == getppid() && info.si_value.sival_int == next);
        CHECK(sigqueue(getppid(), SIGRTMIN + 2, (union sigval){.sival_int = next * 2}) == 0);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigset_t old;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGTERM);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    pid_t pid = partner(body);
    on_info(SIGRTMIN + 2, handler, 0);
    sigset_t answer;
    sigemptyset(&answer);
    sigaddset(&answer, SIGRTMIN + 2);
    CHECK(sigprocmask(SIG_BLOCK, &answer, &old) == 0);
    int n = 0;
    while (going_on()) {
        n++;
        CHECK(sigqueue(pid, SIGRTMIN + 1, (union sigval){.sival_int = n}) == 0);
        while (handled != n * 2) CHECK_ERROR(sigsuspend(&old), EINTR);
        CHECK(waitpid(pid, NULL, WNOHANG) == 0);
    }
    CHECK(kill(pid, SIGTERM) == 0 && WEXITSTATUS(wait_for(pid)) == (n + 1) % 100);
    return suite_end();
}
