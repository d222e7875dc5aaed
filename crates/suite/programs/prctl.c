/* prctl: name, parent-death signal, dumpable, subreaper, no-new-privs, timer slack: kept as set. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char name[17] = "", want[16];
    int value;
    for (int round = 0; going_on(); round++) {
        sprintf(want, "suite-%d", round % 1000);
        CHECK(prctl(PR_SET_NAME, want) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, want) == 0);
        int fd = open("/proc/self/comm", O_RDONLY);
        ssize_t n = read(fd, name, sizeof name - 1);
        CHECK(n == (ssize_t)strlen(want) + 1 && memcmp(name, want, n - 1) == 0 && close(fd) == 0);
        int signal = round % 2 ? SIGUSR1 : 0;
        CHECK(prctl(PR_SET_PDEATHSIG, signal) == 0 && prctl(PR_GET_PDEATHSIG, &value) == 0 && value == signal);
        CHECK(prctl(PR_SET_CHILD_SUBREAPER, round % 2) == 0 && prctl(PR_GET_CHILD_SUBREAPER, &value) == 0 && value == round % 2);
        CHECK(prctl(PR_GET_DUMPABLE) == 1 && prctl(PR_SET_TIMERSLACK, 50000 + round) == 0 && prctl(PR_GET_TIMERSLACK) == 50000 + round);
    }
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    return suite_end();
}
