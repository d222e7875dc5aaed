/* alarm: the old one's rest is told, a new one replaces it, it ends a blocked read. */
#include "suite.h"
static volatile sig_atomic_t rung, again = 1;
static void handler(int signal) {
    (void)signal;
    rung++;
    /* Again, for it may have come before the call that it is to end. */
    if (again) alarm(1);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGALRM, handler, 0);
    int p[2];
    char c;
    CHECK(pipe(p) == 0);
    long start = elapsed_ms();
    CHECK(alarm(1) == 0);
    CHECK_ERROR(read(p[0], &c, 1), EINTR);
    again = 0;
    CHECK(rung >= 1 && elapsed_ms() - start >= 990);
    alarm(0);
    int before = rung;
    while (going_on()) {
        CHECK(alarm(1000) == 0);
        unsigned rest = alarm(500);
        CHECK(rest > 900 && rest <= 1000);
        rest = alarm(0);
        CHECK(rest > 400 && rest <= 500 && rung == before);
    }
    return suite_end();
}
