/* SIGSTOP to oneself is seen by the real parent, and SIGCONT ends it. The partner is a child that looks at /proc. */
#include "suite.h"
static pid_t target;
static char state(void) {
    char path[64], text[512], *at;
    sprintf(path, "/proc/%d/stat", target);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0) return 0;
    text[n] = 0;
    close(fd);
    at = strrchr(text, ')');
    return at ? at[2] : 0;
}
static void body(void) {
    for (;;) {
        while (state() != 'T' && state() != 't') sleep_ms(1);
        sleep_ms(3);
        if (kill(target, SIGCONT) < 0) return;
        sleep_ms(3);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    target = getpid();
    pid_t pid = partner(body);
    while (going_on()) {
        long before = elapsed_ms();
        CHECK(raise(SIGSTOP) == 0);
        CHECK(elapsed_ms() >= before);
        sleep_ms(12);
    }
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
