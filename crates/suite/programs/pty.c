/* A pseudo terminal: canonical lines, erase, echo, raw mode, window size. */
#include "suite.h"
#include <termios.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(slave >= 0 && isatty(slave));
    struct termios cooked, raw;
    CHECK(tcgetattr(slave, &cooked) == 0);
    raw = cooked;
    cfmakeraw(&raw);
    char in[100];
    for (unsigned round = 0; going_on(); round++) {
        CHECK(tcsetattr(slave, TCSAFLUSH, &cooked) == 0);
        CHECK(write(master, "helpx\x7flo\n", 9) == 9);
        CHECK(read(slave, in, sizeof in) == 7 && memcmp(in, "helplo\n", 7) == 0);
        read_all(master, in, 12);
        CHECK(memcmp(in, "helpx\b \blo\r\n", 12) == 0);
        CHECK(tcsetattr(slave, TCSAFLUSH, &raw) == 0);
        CHECK(write(master, "\x03 r", 3) == 3 && in[0] != 3);
        read_all(slave, in, 3);
        CHECK(memcmp(in, "\x03 r", 3) == 0);
        CHECK(write(slave, "out\n", 4) == 4);
        read_all(master, in, 4);
        CHECK(memcmp(in, "out\n", 4) == 0);
        struct winsize size = {24 + round % 9, 80, 0, 0}, got;
        CHECK(ioctl(master, TIOCSWINSZ, &size) == 0 && ioctl(slave, TIOCGWINSZ, &got) == 0);
        CHECK(got.ws_row == size.ws_row && got.ws_col == 80);
    }
    return suite_end();
}
