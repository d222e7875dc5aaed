/* A write that has filled its pipe and waits: a signal ends it with the bytes that it has written, whether its handler restarts calls or not. */
#include "suite.h"
static volatile sig_atomic_t rung;
static void ring(int signal) {
    (void)signal;
    rung++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char data[300000];
    for (int round = 0; going_on(); round++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        struct sigaction action = {.sa_handler = ring, .sa_flags = round % 2 ? SA_RESTART : 0};
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        struct itimerval timer = {.it_value = {.tv_usec = 20000 + round % 5 * 10000}};
        rung = 0;
        fill((unsigned char *)data, sizeof data, round);
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
        ssize_t written = write(ends[1], data, sizeof data);
        CHECK(written == 65536 && rung == 1);
        static unsigned char back[65536];
        for (ssize_t got = 0; got < written;) {
            ssize_t part = read(ends[0], back + got, written - got);
            CHECK(part > 0);
            got += part;
        }
        CHECK(memcmp(back, data, written) == 0);
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    }
    return suite_end();
}
