/* Process groups: setpgid by parent and child, kill of a group, wait by group, and errors across sessions. */
#include "suite.h"
enum { COUNT = 4 };
static int ready[2];
static void handler(int signal) { _exit(60 + (signal == SIGUSR1)); }
static void member(pid_t group) {
    on(SIGUSR1, handler, 0);
    CHECK(setpgid(0, group) == 0 && getpgrp() == (group ? group : getpid()));
    write_all(ready[1], "r", 1);
    for (;;) pause();
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pid_t mine = getpgrp();
    while (going_on()) {
        pid_t pids[COUNT];
        char all[COUNT];
        CHECK(pipe(ready) == 0);
        for (int i = 0; i < COUNT; i++) {
            pid_t main_pid = getpid();
            CHECK((pids[i] = fork()) >= 0);
            if (pids[i] == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() == main_pid) member(i ? pids[0] : 0);
                _exit(91);
            }
            CHECK(setpgid(pids[i], pids[0]) == 0 && getpgid(pids[i]) == pids[0]);
        }
        read_all(ready[0], all, COUNT);
        CHECK(kill(-pids[0], 0) == 0 && getpgrp() == mine);
        CHECK(waitpid(0, NULL, WNOHANG) < 0 && errno == ECHILD && waitpid(-pids[0], NULL, WNOHANG) == 0);
        CHECK(kill(-pids[0], SIGUSR1) == 0);
        for (int i = 0; i < COUNT; i++) {
            int status;
            CHECK(waitpid(-pids[0], &status, 0) > 0 && WEXITSTATUS(status) == 61);
        }
        CHECK_ERROR(kill(-pids[0], 0), ESRCH);
        CHECK_ERROR(waitpid(-pids[0], NULL, 0), ECHILD);
        CHECK_ERROR(setpgid(1, 0), ESRCH);
        CHECK(close(ready[0]) == 0 && close(ready[1]) == 0);
    }
    return suite_end();
}
