/* pidfd: of oneself, of a child; a signal through it; it is ready when the child ends. */
#include "suite.h"
#include <sys/pidfd.h>
static volatile sig_atomic_t got;
static void handler(int signal) {
    (void)signal;
    got++;
}
static void body(void) { pause(); }
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR2, handler, 0);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(self >= 0);
    for (int round = 1; going_on(); round++) {
        CHECK(syscall(SYS_pidfd_send_signal, self, SIGUSR2, NULL, 0) == 0 && got == round);
        if (round % 8 != 1) continue;
        pid_t pid = partner(body);
        int fd = syscall(SYS_pidfd_open, pid, 0);
        struct pollfd wait = {fd, POLLIN, 0};
        CHECK(fd >= 0 && poll(&wait, 1, 0) == 0);
        CHECK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0 && poll(&wait, 1, -1) == 1);
        CHECK(WTERMSIG(wait_for(pid)) == SIGKILL && close(fd) == 0);
    }
    return suite_end();
}
