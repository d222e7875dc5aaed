/* A named pipe; opening blocks until a partner opens the other end. */
#include "suite.h"
static int closed[2];
static void body(void) {
    unsigned number;
    for (;;) {
        int fd = open("fifo", O_RDONLY), back = open("back", O_WRONLY);
        CHECK(fd >= 0 && back >= 0);
        read_all(fd, &number, sizeof number);
        number = ~number;
        sleep_ms(3);
        write_all(back, &number, sizeof number);
        CHECK(read(fd, &number, 1) == 0 && close(fd) == 0 && close(back) == 0);
        CHECK(write(closed[1], "c", 1) == 1);
        if (number == 0) return;
    }
}
static void ask(unsigned number) {
    int fd = open("fifo", O_WRONLY), back = open("back", O_RDONLY);
    unsigned answer;
    CHECK(fd >= 0 && back >= 0);
    CHECK(write(fd, &number, sizeof number) == sizeof number);
    CHECK(read(back, &answer, sizeof answer) == sizeof answer && answer == ~number);
    CHECK(close(fd) == 0 && close(back) == 0 && read(closed[0], &answer, 1) == 1);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(closed) == 0 && mkfifo("fifo", 0600) == 0 && mkfifo("back", 0600) == 0);
    CHECK_ERROR(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO);
    pid_t pid = partner(body);
    for (unsigned round = 0; going_on(); round++) ask(round);
    ask(~0u);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
