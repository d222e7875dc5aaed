/* Twelve children at once that end by exit, by signals and by faults, waited for in another order: each its own status. */
#include "suite.h"
enum { COUNT = 12 };
static const int signals[4] = {SIGTERM, SIGKILL, SIGSEGV, SIGUSR2};
static void end(int i, int round) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (i % 3 == 1) sleep_ms(i % 4);
    if (i % 3 == 0) _exit((i * 20 + round) % 256);
    if (i % 3 == 1) raise(signals[i / 3]);
    if (i % 3 == 2 && i < 6) *(volatile int *)(long)i = 0;
    if (i % 3 == 2 && i >= 6) exit(200 + i);
    _exit(99);
}
static void check(int i, int round, int status) {
    if (i % 3 == 0) CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (i * 20 + round) % 256);
    if (i % 3 == 1) CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i / 3]);
    if (i % 3 == 2 && i < 6) CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    if (i % 3 == 2 && i >= 6) CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 200 + i);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int round = 0; going_on(); round++) {
        pid_t pids[COUNT];
        for (int i = 0; i < COUNT; i++) {
            CHECK((pids[i] = fork()) >= 0);
            if (pids[i] == 0) end(i, round);
        }
        for (int i = COUNT - 1; i >= 6; i--) check(i, round, wait_for(pids[i]));
        for (int n = 0; n < 6; n++) {
            int status, i = 0;
            pid_t pid = wait(&status);
            while (i < 6 && pids[i] != pid) i++;
            CHECK(i < 6);
            pids[i] = -1;
            check(i, round, status);
        }
        CHECK_ERROR(wait(NULL), ECHILD);
        sleep_ms(5);
    }
    return suite_end();
}
