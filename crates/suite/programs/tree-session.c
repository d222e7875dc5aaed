/* setsid: a child in a session of its own, its child in it too; what may and may not be done across sessions. */
#include "suite.h"
static void body(void) {
    pid_t old = getsid(0), me = getpid();
    if (old == me || setsid() != me || getsid(0) != me || getpgrp() != me) _exit(1);
    if (setsid() != -1 || errno != EPERM || setpgid(0, 0) != -1 || errno != EPERM) _exit(2);
    if (open("/dev/tty", O_RDWR) >= 0) _exit(3);
    pid_t pid = fork();
    if (pid == 0) {
        if (getsid(0) != me || getpgrp() != me) _exit(4);
        if (setpgid(0, 0) != 0 || getpgrp() != getpid() || getsid(0) != me) _exit(5);
        _exit(33);
    }
    _exit(WEXITSTATUS(wait_for(pid)));
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pid_t session = getsid(0), group = getpgrp();
    while (going_on()) {
        pid_t pid = partner(body);
        siginfo_t info;
        CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 33);
        /* Dead, but still there: its group and session can be asked for, not changed. */
        CHECK(getsid(pid) == pid && getpgid(pid) == pid);
        CHECK_ERROR(setpgid(pid, group), EPERM);
        CHECK(WEXITSTATUS(wait_for(pid)) == 33 && getsid(0) == session && getpgrp() == group);
        CHECK_ERROR(getsid(pid), ESRCH);
    }
    return suite_end();
}
