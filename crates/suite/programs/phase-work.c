/* Computes on its memory and works on a file. With a second argument it goes on till its input ends, not by time. */
#include "suite.h"
static unsigned char data[3 << 20], in[4096];
static int told;
static int more(void) {
    struct pollfd input = {0, POLLIN, 0};
    char c;
    if (!told) return going_on();
    return poll(&input, 1, 0) <= 0 || read(0, &c, 1) != 0;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    told = argc > 2;
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    fill(data, sizeof data, 0);
    say("ready\n");
    for (unsigned round = 0; more(); round++) {
        CHECK(filled(data, sizeof data, round));
        fill(data, sizeof data, round + 1);
        CHECK(pwrite(fd, data, sizeof in, 0) == sizeof in);
        CHECK(pread(fd, in, sizeof in, 0) == sizeof in && filled(in, sizeof in, round + 1));
    }
    return suite_end();
}
