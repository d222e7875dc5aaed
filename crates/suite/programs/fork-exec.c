/* fork, exec and wait in a loop, by fork, vfork and posix_spawn, with the output read back. */
#include "suite.h"
#include <spawn.h>
extern char **environ;
static pid_t start(int how, char **command, int out) {
    pid_t pid;
    if (how == 2) {
        posix_spawn_file_actions_t actions;
        CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, out, 1) == 0);
        CHECK(posix_spawn(&pid, command[0], &actions, NULL, command, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        return pid;
    }
    pid = how ? vfork() : fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(out, 1);
        execv(command[0], command);
        _exit(99);
    }
    return pid;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char number[32], in[64];
    char *command[] = {"/bin/sh", "-c", "echo $0; exit 5", number, NULL};
    for (int round = 0; going_on(); round++) {
        int p[2];
        CHECK(pipe2(p, O_CLOEXEC) == 0);
        int n = sprintf(number, "round-%d", round);
        pid_t pid = start(round % 3, command, p[1]);
        close(p[1]);
        CHECK(WEXITSTATUS(wait_for(pid)) == 5);
        CHECK(read(p[0], in, sizeof in) == n + 1 && memcmp(in, number, n) == 0 && close(p[0]) == 0);
        sleep_ms(10);
    }
    return suite_end();
}
