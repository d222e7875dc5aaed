/* posix_spawn: file actions, group, mask, defaults, and paths that fail (ENOENT, EACCES) without a child left. */
#include "suite.h"
#include <spawn.h>
extern char **environ;
static int fails_with(const char *path) {
    pid_t pid = -7;
    char *command[] = {"x", NULL};
    int error = posix_spawn(&pid, path, NULL, NULL, command, environ);
    CHECK_ERROR(waitpid(-1, NULL, WNOHANG), ECHILD);
    return error;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t masked, defaults;
    sigemptyset(&masked);
    sigemptyset(&defaults);
    sigaddset(&masked, SIGUSR1);
    sigaddset(&defaults, SIGUSR2);
    on(SIGUSR2, SIG_IGN, 0);
    CHECK(posix_spawn_file_actions_init(&files) == 0 && posix_spawnattr_init(&how) == 0);
    CHECK(posix_spawn_file_actions_addopen(&files, 5, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0600) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&files, 5, 1) == 0 && posix_spawn_file_actions_addclose(&files, 5) == 0);
    CHECK(posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) == 0);
    CHECK(posix_spawnattr_setpgroup(&how, 0) == 0 && posix_spawnattr_setsigmask(&how, &masked) == 0);
    CHECK(posix_spawnattr_setsigdefault(&how, &defaults) == 0);
    for (int round = 0; going_on(); round++) {
        char command[128], want[32], in[64];
        /* USR1 stays pending for the shell, USR2 ends it. */
        sprintf(command, "echo %d; kill -USR1 $$; echo on; kill -USR2 $$; echo never", round);
        char *arguments[] = {"sh", "-c", command, NULL};
        pid_t pid;
        CHECK(posix_spawn(&pid, "/bin/sh", &files, &how, arguments, environ) == 0);
        int status = wait_for(pid), fd = open("spawned", O_RDONLY);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2 && fd >= 0);
        ssize_t n = read(fd, in, sizeof in);
        CHECK(n == sprintf(want, "%d\non\n", round) && memcmp(in, want, n) == 0 && close(fd) == 0);
        CHECK(posix_spawnp(&pid, "true", NULL, &how, (char *[]){"true", NULL}, environ) == 0);
        siginfo_t info;
        CHECK(waitid(P_PGID, pid, &info, WEXITED) == 0 && info.si_pid == pid && info.si_status == 0);
        CHECK(fails_with("/no/such/program") == ENOENT && fails_with("/") == EACCES);
        sleep_ms(8);
    }
    CHECK(unlink("spawned") == 0);
    return suite_end();
}
