/* The first process ends before its child, which goes on, with another parent, and says the last line. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pid_t me = getpid();
    int p[2];
    char byte;
    CHECK(pipe(p) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(p[1]);
        unsigned char data[20000];
        fill(data, sizeof data, 1);
        /* Ends when the parent has ended: nobody else has the other end. */
        CHECK(read(p[0], &byte, 1) == 0);
        while (getppid() == me) sleep_ms(1);
        CHECK(filled(data, sizeof data, 1));
        say("the child is left\n");
        _exit(0);
    }
    unsigned char data[20000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round) && waitpid(pid, NULL, WNOHANG) == 0);
    }
    return suite_end();
}
