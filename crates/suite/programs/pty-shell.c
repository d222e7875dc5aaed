/* A shell's work: a job that reads the terminal in the background stops (SIGTTIN), goes on in the foreground. */
#include "suite.h"
#include <termios.h>
static int gate[2], done[2], slave;
static void body(void) {
    char go, line[10];
    setpgid(0, 0);
    close(gate[1]);
    signal(SIGTTIN, SIG_DFL);
    while (read(gate[0], &go, 1) == 1) {
        CHECK(read(slave, line, sizeof line) == 5 && memcmp(line, "line\n", 5) == 0);
        CHECK(write(done[1], &go, 1) == 1);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK((setsid() >= 0 || getpgrp() == getpid()) && pipe(gate) == 0 && pipe(done) == 0);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(slave >= 0 && ioctl(slave, TIOCSCTTY, 0) == 0);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    pid_t pid = partner(body);
    setpgid(pid, pid);
    close(gate[0]);
    char c = 'g';
    int status;
    while (going_on()) {
        CHECK(tcsetpgrp(slave, getpgrp()) == 0 && write(gate[1], &c, 1) == 1);
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
        CHECK(tcsetpgrp(slave, pid) == 0 && tcgetpgrp(slave) == pid && kill(-pid, SIGCONT) == 0);
        CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
        CHECK(write(master, "line\n", 5) == 5 && read(done[0], &c, 1) == 1 && tcflush(master, TCIOFLUSH) == 0);
    }
    close(gate[1]);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
