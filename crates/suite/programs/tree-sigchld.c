/* A SIGCHLD handler that fetches all that have ended (waitpid -1, WNOHANG): every child once, whatever signals merged. */
#include "suite.h"
static volatile int ended, sum;
static void handler(int signal) {
    (void)signal;
    int error = errno, status;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        if (!WIFEXITED(status)) _exit(92);
        ended++;
        sum += WEXITSTATUS(status);
    }
    errno = error;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGCHLD, handler, SA_RESTART | SA_NOCLDSTOP);
    int started = 0, want = 0;
    unsigned char data[10000];
    for (int round = 0; going_on(); round++) {
        for (int i = 0; i < 6; i++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                if (i % 2) sleep_ms(i);
                _exit((round + i) % 100);
            }
            started++;
            want += (round + i) % 100;
        }
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
        for (int n = 0; ended < started; n++) {
            CHECK(n < 20000);
            sleep_ms(1);
        }
        CHECK(ended == started && sum == want);
    }
    CHECK_ERROR(wait(NULL), ECHILD);
    return suite_end();
}
