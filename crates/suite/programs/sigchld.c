/* SIGCHLD: a handler sees pid and status; ignored, children leave no zombies (ECHILD). */
#include "suite.h"
static volatile siginfo_t seen;
static volatile sig_atomic_t count;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    seen = *info;
    count++;
}
static void body(void) {
    sleep_ms(2);
    _exit(7);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int round = 0; going_on(); round++) {
        on_info(SIGCHLD, handler, round % 2 ? SA_RESTART : SA_NOCLDSTOP);
        count = 0;
        pid_t pid = partner(body);
        for (int i = 0; !count && i < 20000; i++) sleep_ms(1);
        CHECK(count == 1 && seen.si_pid == pid && seen.si_status == 7 && seen.si_code == CLD_EXITED);
        CHECK(WEXITSTATUS(wait_for(pid)) == 7);
        on(SIGCHLD, SIG_IGN, 0);
        partner(body);
        CHECK_ERROR(wait(NULL), ECHILD);
        on(SIGCHLD, SIG_DFL, SA_NOCLDWAIT);
        partner(body);
        CHECK_ERROR(waitpid(-1, NULL, 0), ECHILD);
    }
    return suite_end();
}
