/* exec in a loop through scripts: "#!" with a shell, with this program itself, with one argument, and what fails. */
#include "suite.h"
static void script(const char *name, const char *text, int mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    CHECK(fd >= 0);
    write_all(fd, text, strlen(text));
    CHECK(close(fd) == 0);
}
static int run(const char *path, const char *a, const char *b) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(path, "zeroth", a, b, (char *)NULL);
        _exit(100 + errno);
    }
    int status = wait_for(pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}
int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--as interpreter") == 0) {
        /* The rest of the line is one argument, then come the script and what it was given. */
        return strcmp(argv[2], "./by-me") || strcmp(argv[3], "one") ? 99 : atoi(argv[4]);
    }
    suite_begin(argc, argv);
    char me[PATH_MAX], text[100];
    ssize_t n = readlink("/proc/self/exe", me, sizeof me - 1);
    CHECK(n > 0);
    me[n] = 0;
    CHECK(symlink(me, "me") == 0);
    script("by-shell", "#!/bin/sh\n[ \"$0\" = ./by-shell ] && [ \"$1\" = one ] || exit 99\nexit $2\n", 0700);
    script("by-me", "#!./me --as interpreter\nno script at all\n", 0700);
    script("by-script", "#!./by-shell\n", 0700);
    script("by-nobody", "#!/no/such/interpreter\n", 0700);
    script("not-executable", "#!/bin/sh\n", 0600);
    script("empty", "", 0700);
    for (int round = 0; going_on(); round++) {
        sprintf(text, "%d", round % 90);
        CHECK(run("./by-shell", "one", text) == round % 90 && run("./by-me", "one", text) == round % 90);
        /* by-script is the first argument of by-shell, which does not like it. */
        CHECK(run("./by-script", "one", text) == 99);
        CHECK(run("./by-nobody", "one", text) == 100 + ENOENT && run("./not-executable", "one", text) == 100 + EACCES);
        CHECK(run("./empty", "one", text) == 100 + ENOEXEC && run("./missing", "one", text) == 100 + ENOENT);
        sleep_ms(4);
    }
    const char *names[] = {"me", "by-shell", "by-me", "by-script", "by-nobody", "not-executable", "empty"};
    for (int i = 0; i < 7; i++) CHECK(unlink(names[i]) == 0);
    return suite_end();
}
