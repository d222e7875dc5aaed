/* Blocked in read on a pipe that a partner fills now and then. */
#include "suite.h"
static int p[2];
static void body(void) {
    close(p[0]);
    signal(SIGPIPE, SIG_DFL);
    for (unsigned i = 0;; i++) {
        write_all(p[1], &i, sizeof i);
        sleep_ms(5 + i % 40);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(p) == 0);
    pid_t pid = partner(body);
    close(p[1]);
    for (unsigned round = 0, got; going_on(); round++) {
        CHECK(read(p[0], &got, sizeof got) == sizeof got);
        CHECK(got == round);
    }
    close(p[0]);
    int status = wait_for(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    return suite_end();
}
