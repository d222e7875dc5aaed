/* select and pselect: sets in and out, timeouts, the rest of the time. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2];
    char c;
    CHECK(pipe(p) == 0);
    int high = dup2(p[0], 500);
    CHECK(high == 500);
    while (going_on()) {
        fd_set in, out;
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(p[0], &in);
        FD_SET(high, &in);
        FD_SET(p[1], &out);
        struct timeval limit = {1, 0};
        CHECK(select(high + 1, &in, &out, NULL, &limit) == 1 && FD_ISSET(p[1], &out) && !FD_ISSET(high, &in));
        CHECK(limit.tv_sec == 0 || limit.tv_usec == 0);
        CHECK(write(p[1], "y", 1) == 1);
        FD_SET(p[0], &in);
        FD_SET(high, &in);
        CHECK(select(high + 1, &in, NULL, NULL, NULL) == 2 && FD_ISSET(p[0], &in) && FD_ISSET(high, &in));
        CHECK(read(high, &c, 1) == 1 && c == 'y');
        long before = elapsed_ms();
        limit = (struct timeval){0, 9000};
        CHECK(select(high + 1, &in, NULL, NULL, &limit) == 0 && !FD_ISSET(p[0], &in));
        CHECK(elapsed_ms() - before >= 8 && limit.tv_sec == 0 && limit.tv_usec == 0);
        struct timespec short_limit = {0, 3000000};
        FD_SET(p[0], &in);
        CHECK(pselect(p[0] + 1, &in, NULL, NULL, &short_limit, NULL) == 0 && short_limit.tv_nsec == 3000000);
    }
    return suite_end();
}
