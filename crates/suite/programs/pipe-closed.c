/* End of file when the writers are gone; SIGPIPE and EPIPE when the readers are. */
#include "suite.h"
static volatile sig_atomic_t broken;
static void handler(int signal) {
    (void)signal;
    broken++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGPIPE, handler, 0);
    int p[2];
    char c;
    for (int round = 1; going_on(); round++) {
        CHECK(pipe(p) == 0 && write(p[1], "x", 1) == 1 && close(p[1]) == 0);
        CHECK(read(p[0], &c, 1) == 1 && c == 'x' && read(p[0], &c, 1) == 0 && close(p[0]) == 0);
        CHECK(pipe(p) == 0 && close(p[0]) == 0);
        CHECK_ERROR(write(p[1], "x", 1), EPIPE);
        CHECK(broken == round && close(p[1]) == 0);
    }
    return suite_end();
}
