/* A subreaper inherits its grandchildren; a partner with a parent-death signal gets it. */
#include "suite.h"
static int p[2];
static void body(void) {
    pid_t pid = fork();
    if (pid == 0) {
        close(p[0]);
        while (getppid() == 0) sleep_ms(1);
        sleep_ms(4);
        pid = getpid();
        write_all(p[1], &pid, sizeof pid);
        _exit(9);
    }
    _exit(pid > 0 ? 0 : 1);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    while (going_on()) {
        pid_t grandchild;
        CHECK(pipe(p) == 0 && wait_for(partner(body)) == 0);
        close(p[1]);
        read_all(p[0], &grandchild, sizeof grandchild);
        CHECK(WEXITSTATUS(wait_for(grandchild)) == 9 && close(p[0]) == 0);
    }
    return suite_end();
}
