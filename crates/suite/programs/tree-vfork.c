/* vfork: the child works in the parent's memory till it execs or exits, and says so of an exec that failed. */
#include "suite.h"
static volatile int error, count;
static unsigned char data[40000];
static int run(const char *path, char *const command[]) {
    error = 0;
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        count++;
        data[count % sizeof data] ^= 1;
        execv(path, command);
        error = errno;
        _exit(120 + error);
    }
    return wait_for(pid);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char code[32], *shell[] = {"sh", "-c", code, NULL};
    fill(data, sizeof data, 5);
    for (int round = 0; going_on(); round++) {
        int before = count;
        sprintf(code, "exit %d", round % 100);
        int status = run("/bin/sh", shell);
        CHECK(WEXITSTATUS(status) == round % 100 && error == 0 && count == before + 1);
        status = run("/no/such/program", shell);
        CHECK(WEXITSTATUS(status) == 120 + ENOENT && error == ENOENT && count == before + 2);
        status = run("/", shell);
        CHECK(WEXITSTATUS(status) == 120 + EACCES && error == EACCES && count == before + 3);
        for (int n = before + 1; n <= count; n++) {
            CHECK(data[n % sizeof data] == (pattern_at(n % sizeof data, 5) ^ 1));
            data[n % sizeof data] ^= 1;
        }
        CHECK(filled(data, sizeof data, 5));
        sleep_ms(8);
    }
    return suite_end();
}
