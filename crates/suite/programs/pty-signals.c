/* The keys of a controlling terminal: ^C, ^\, ^Z and a new window size reach the foreground group. */
#include "suite.h"
#include <termios.h>
static volatile sig_atomic_t count[65];
static void handler(int signal) { count[signal]++; }
static void expect(int signal, int times) {
    for (int i = 0; count[signal] < times && i < 5000; i++) sleep_ms(1);
    CHECK(count[signal] == times);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(setsid() >= 0 || getpgrp() == getpid());
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(slave >= 0 && ioctl(slave, TIOCSCTTY, 0) == 0 && tcgetpgrp(slave) == getpgrp());
    int keys[] = {SIGINT, SIGQUIT, SIGTSTP, SIGWINCH};
    for (int i = 0; i < 4; i++) on(keys[i], handler, SA_RESTART);
    signal(SIGHUP, SIG_IGN);
    for (int round = 1; going_on(); round++) {
        CHECK(write(master, "\x03", 1) == 1);
        expect(SIGINT, round);
        CHECK(write(master, "\x1c", 1) == 1);
        expect(SIGQUIT, round);
        CHECK(write(master, "\x1a", 1) == 1);
        expect(SIGTSTP, round);
        struct winsize size = {20 + round % 2, 70, 0, 0};
        CHECK(ioctl(master, TIOCSWINSZ, &size) == 0);
        expect(SIGWINCH, round);
        int tty = open("/dev/tty", O_RDWR);
        CHECK(tty >= 0 && tcgetsid(tty) == getsid(0) && close(tty) == 0);
        char echo[100];
        CHECK(read(master, echo, sizeof echo) > 0);
    }
    return suite_end();
}
