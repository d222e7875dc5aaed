/* Resource limits are kept and enforced: open files, file size, address space, core. */
#include "suite.h"
static volatile int big;
static void handler(int signal) {
    (void)signal;
    big++;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGXFSZ, handler, 0);
    int file = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    struct rlimit first;
    CHECK(getrlimit(RLIMIT_NOFILE, &first) == 0);
    for (int round = 0; going_on(); round++) {
        struct rlimit limit = {40 + round % 50, first.rlim_max}, now;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && prlimit(0, RLIMIT_NOFILE, NULL, &now) == 0);
        CHECK(now.rlim_cur == limit.rlim_cur && sysconf(_SC_OPEN_MAX) == (long)limit.rlim_cur);
        int last = 0, fd;
        while ((fd = dup(1)) >= 0) last = fd;
        CHECK(errno == EMFILE && last < (int)limit.rlim_cur && close_range(file + 1, last, 0) == 0);
        limit = (struct rlimit){5000, RLIM_INFINITY};
        CHECK(getrlimit(RLIMIT_FSIZE, &now) == 0);
        limit.rlim_max = now.rlim_max;
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        static char data[6000];
        CHECK(pwrite(file, data, 6000, 0) == 5000);
        int before = big;
        CHECK_ERROR(pwrite(file, data, 1, 5000), EFBIG);
        CHECK(big == before + 1 && setrlimit(RLIMIT_FSIZE, &now) == 0);
        CHECK(setrlimit(RLIMIT_NOFILE, &first) == 0);
    }
    return suite_end();
}
