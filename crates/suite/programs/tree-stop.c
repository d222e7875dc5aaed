/* A group of computing children stopped and continued: the parent sees each change once; they compute on and are right. */
#include "suite.h"
enum { COUNT = 3 };
static int up[2];
static void compute(pid_t group) {
    CHECK(setpgid(0, group) == 0);
    write_all(up[1], "r", 1);
    static unsigned char data[10000];
    for (unsigned round = 0;; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
}
static void each(pid_t group, int options, int *codes, int want) {
    for (int i = 0; i < COUNT; i++) {
        siginfo_t info;
        CHECK(waitid(P_PGID, group, &info, options) == 0 && info.si_code == want);
        codes[i] = info.si_pid;
    }
    for (int i = 0; i < COUNT; i++) CHECK(codes[i] != codes[(i + 1) % COUNT]);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        pid_t pids[COUNT], me = getpid();
        int seen[COUNT];
        char all[COUNT];
        CHECK(pipe(up) == 0);
        for (int i = 0; i < COUNT; i++) {
            CHECK((pids[i] = fork()) >= 0);
            if (pids[i] == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() == me) compute(i ? pids[0] : 0);
                _exit(91);
            }
            CHECK(setpgid(pids[i], pids[0]) == 0);
        }
        read_all(up[0], all, COUNT);
        for (int i = 0; i < 3; i++) {
            CHECK(kill(-pids[0], i % 2 ? SIGTSTP : SIGSTOP) == 0);
            each(pids[0], WSTOPPED, seen, CLD_STOPPED);
            CHECK(kill(-pids[0], SIGCONT) == 0);
            each(pids[0], WCONTINUED, seen, CLD_CONTINUED);
        }
        CHECK(kill(-pids[0], SIGTERM) == 0);
        each(pids[0], WEXITED, seen, CLD_KILLED);
        CHECK(close(up[0]) == 0 && close(up[1]) == 0);
    }
    return suite_end();
}
