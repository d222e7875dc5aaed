/* system(): statuses, and the signals that its caller gets meanwhile: INT ignored, CHLD late, others at once. */
#include "suite.h"
static volatile sig_atomic_t others;
static void handler(int signal) {
    if (signal != SIGCHLD) others++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGCHLD, handler, SA_RESTART);
    on(SIGUSR1, handler, SA_RESTART);
    on(SIGINT, handler, SA_RESTART);
    CHECK(system(NULL) != 0);
    for (int round = 0; going_on(); round++) {
        char command[200];
        sprintf(command, "exit %d", round % 256);
        int status = system(command);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == round % 256);
        status = system("kill -TERM $$");
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        CHECK(WEXITSTATUS(system("/no/such/program 2>/dev/null")) == 127);
        /* The caller ignores SIGINT while system() runs; USR1 is handled at once. */
        int before = others;
        sprintf(command, "kill -INT %d; kill -USR1 %d", getpid(), getpid());
        CHECK(system(command) == 0 && others == before + 1);
        CHECK(raise(SIGINT) == 0 && others == before + 2);
        sleep_ms(8);
    }
    return suite_end();
}
