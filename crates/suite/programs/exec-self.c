/* exec of oneself again and again: pid, descriptors, pending and ignored signals stay. */
#include "suite.h"
int main(int argc, char **argv) {
    int round = argc > 2 ? atoi(argv[2]) : 0;
    if (argc > 1) suite_ms = atol(argv[1]);
    char pid[32], *next[] = {argv[0], NULL, NULL, NULL};
    sprintf(pid, "%d", getpid());
    if (round == 0) {
        setenv("SUITE_PID", pid, 1);
        CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR && dup2(1, 50) == 50);
    }
    CHECK(strcmp(getenv("SUITE_PID"), pid) == 0 && fcntl(50, F_GETFD) == 0);
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    if (round > 0) CHECK(sigpending(&now) == 0 && sigismember(&now, SIGUSR2) && signal(SIGUSR1, SIG_IGN) == SIG_IGN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && kill(getpid(), SIGUSR2) == 0);
    suite_begin(1, argv);
    long slice = suite_ms / 10;
    static unsigned char data[20000];
    do fill(data, sizeof data, round);
    while (elapsed_ms() < slice);
    CHECK(filled(data, sizeof data, round));
    say("image %d\n", round);
    if (round < 9) {
        char ms[32], again[32];
        sprintf(ms, "%ld", suite_ms);
        sprintf(again, "%d", round + 1);
        next[1] = ms;
        next[2] = again;
        execv("/proc/self/exe", next);
        CHECK(!"exec");
    }
    say("ok\n");
    return 0;
}
