/* A tree of processes four deep, each node adds its children's sums; pids, parents and groups fit together. */
#include "suite.h"
static long node(int depth, long number, pid_t parent, pid_t group) {
    CHECK(getppid() == parent && getpgrp() == group);
    long sum = number;
    pid_t me = getpid(), pids[2];
    int p[2][2];
    for (int i = 0; depth && i < 2; i++) {
        CHECK(pipe(p[i]) == 0 && (pids[i] = fork()) >= 0);
        if (pids[i] == 0) {
            long mine = node(depth - 1, number * 2 + i, me, group);
            write_all(p[i][1], &mine, sizeof mine);
            _exit(depth);
        }
        close(p[i][1]);
    }
    for (int i = 0; depth && i < 2; i++) {
        long theirs;
        read_all(p[i][0], &theirs, sizeof theirs);
        CHECK(close(p[i][0]) == 0 && WEXITSTATUS(wait_for(pids[i])) == depth);
        sum += theirs;
    }
    return sum;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    while (going_on()) {
        CHECK(node(3, 1, getppid(), getpgrp()) == 15 * 16 / 2);
        sleep_ms(10);
    }
    return suite_end();
}
