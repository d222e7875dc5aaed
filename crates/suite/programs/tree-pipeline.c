/* A pipeline of three, built by hand: one child makes, one changes, one of another program sorts; the parent compares. */
#include "suite.h"
static pid_t stage(int in, int out, int unused, void (*body)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    if (in >= 0) dup2(in, 0);
    dup2(out, 1);
    close(unused);
    body();
    _exit(99);
}
static void make(void) {
    char line[40];
    for (int i = 0; i < 4000; i++) write_all(1, line, sprintf(line, "%d hello\n", i * 7919 % 4001));
    _exit(1);
}
static void change(void) {
    char data[3000];
    for (ssize_t n; (n = read(0, data, sizeof data)) > 0;) {
        for (ssize_t i = 0; i < n; i++)
            if (data[i] == 'l') data[i] = 'L';
        write_all(1, data, n);
    }
    _exit(2);
}
static void sort_them(void) {
    execlp("sort", "sort", "-n", (char *)NULL);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    const int missing = 4000 * 7919 % 4001; /* 4001 is prime: every other number comes once. */
    while (going_on()) {
        int a[2], b[2], c[2];
        CHECK(pipe2(a, O_CLOEXEC) == 0);
        pid_t first = stage(-1, a[1], a[0], make);
        close(a[1]);
        CHECK(pipe2(b, O_CLOEXEC) == 0);
        pid_t second = stage(a[0], b[1], b[0], change);
        close(a[0]);
        close(b[1]);
        CHECK(pipe2(c, O_CLOEXEC) == 0);
        pid_t third = stage(b[0], c[1], c[0], sort_them);
        close(b[0]);
        close(c[1]);
        char line[100], expected[100];
        FILE *sorted = fdopen(c[0], "r");
        CHECK(sorted);
        for (int i = 0; i <= 4000; i++) {
            if (i == missing) continue;
            sprintf(expected, "%d heLLo\n", i);
            CHECK(fgets(line, sizeof line, sorted) && strcmp(line, expected) == 0);
        }
        CHECK(!fgets(line, sizeof line, sorted) && fclose(sorted) == 0);
        CHECK(WEXITSTATUS(wait_for(third)) == 0 && WEXITSTATUS(wait_for(first)) == 1 && WEXITSTATUS(wait_for(second)) == 2);
    }
    return suite_end();
}
