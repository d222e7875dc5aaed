/* exec by the first and by another thread of a process with several: one is left, with the pid, and starts again. */
// suite: flags -pthread
#include "threads.h"
static char *next[4];
static void *work(void *number) {
    unsigned char data[5000];
    if ((long)number == 0) sleep(1000);
    for (unsigned round = 0;; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
}
static void *leave(void *unused) {
    (void)unused;
    execv("/proc/self/exe", next);
    CHECK(!"exec");
    return NULL;
}
int main(int argc, char **argv) {
    int round = argc > 2 ? atoi(argv[2]) : 0;
    if (argc > 1) suite_ms = atol(argv[1]);
    suite_begin(1, argv);
    char pid[32], ms[32], again[32];
    sprintf(pid, "%d", getpid());
    if (round == 0) setenv("SUITE_PID", pid, 1);
    struct stat info;
    CHECK(strcmp(getenv("SUITE_PID"), pid) == 0 && gettid() == getpid());
    CHECK(stat("/proc/self/task", &info) == 0 && info.st_nlink == 3);
    for (int i = 0; i < 3; i++) start(work, i);
    unsigned char data[5000];
    do fill(data, sizeof data, round);
    while (elapsed_ms() < suite_ms / 10);
    CHECK(filled(data, sizeof data, round));
    say("image %d\n", round);
    if (round == 9) {
        say("ok\n");
        return 0;
    }
    sprintf(ms, "%ld", suite_ms);
    sprintf(again, "%d", round + 1);
    next[0] = argv[0];
    next[1] = ms;
    next[2] = again;
    if (round % 2) leave(NULL);
    join(start(leave, 0));
    return 1;
}
