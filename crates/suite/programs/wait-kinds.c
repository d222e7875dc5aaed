/* waitpid, waitid and their flags: exited, killed, stopped, continued, WNOWAIT, WNOHANG, by group. */
#include "suite.h"
static void idle(void) {
    for (;;) pause();
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        int status;
        siginfo_t info;
        pid_t pid = partner(idle);
        CHECK(waitpid(pid, &status, WNOHANG) == 0);
        CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid && WSTOPSIG(status) == SIGSTOP);
        CHECK(kill(pid, SIGCONT) == 0 && waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
        CHECK(kill(pid, SIGTERM) == 0);
        CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == pid && info.si_code == CLD_KILLED);
        CHECK(info.si_status == SIGTERM && waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == pid);
        CHECK_ERROR(waitpid(pid, &status, 0), ECHILD);
        pid = partner(idle);
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(0, &status, 0) == pid && WTERMSIG(status) == SIGKILL);
    }
    return suite_end();
}
