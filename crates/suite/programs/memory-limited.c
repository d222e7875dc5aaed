/* Another process sets limits for this one: what is over them fails from then on, and what is there stays. */
#include "suite.h"
static void body(void) {
    for (int i = 0;; i++) {
        struct rlimit limit = {i % 2 ? RLIM_INFINITY : 64ul << 20, RLIM_INFINITY};
        sleep_ms(3 + i % 13);
        if (prlimit(getppid(), i % 4 < 2 ? RLIMIT_AS : RLIMIT_DATA, &limit, NULL) < 0) return;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 100 << 20, KIND = MAP_PRIVATE | MAP_ANONYMOUS };
    pid_t pid = partner(body);
    for (int round = 0; going_on(); round++) {
        char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, KIND, -1, 0);
        CHECK(at != MAP_FAILED || errno == ENOMEM);
        if (at != MAP_FAILED) {
            fill(at + 4096, 4096, round);
            CHECK(filled(at + 4096, 4096, round) && munmap(at, SIZE / 2) == 0);
            if (round % 64 == 0) CHECK(write(open("/dev/null", O_WRONLY), "", 0) == 0 && close(3) == 0);
            CHECK(munmap(at, SIZE) == 0);
        }
    }
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
