/* RLIMIT_CPU: SIGXCPU after a second of CPU time, wherever it was used. */
// suite: known limit: CPU time spent abroad is not added to home's clocks after the return
#include "suite.h"
static volatile int over;
static void handler(int signal) {
    (void)signal;
    over = 1;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGXCPU, handler, 0);
    struct rlimit limit = {1, 30};
    CHECK(setrlimit(RLIMIT_CPU, &limit) == 0);
    volatile unsigned long work = 0;
    while (!over) {
        for (int i = 0; i < 100000; i++) work += i;
        CHECK(elapsed_ms() < 60000);
    }
    struct timespec used;
    /* The kernel counts ticks for the limit; who shares a CPU with many may have had far less than what they come to. */
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0 && (used.tv_sec > 0 || used.tv_nsec > 200000000) && used.tv_sec < 4);
    CHECK(going_on());
    return suite_end();
}
