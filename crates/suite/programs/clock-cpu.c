/* CPU time advances with work, never goes back, and is not more than real time: clock, getrusage, times. */
// suite: known limit: CPU time spent abroad is not added to home's clocks after the return
#include "suite.h"
#include <sys/times.h>
static long cpu_us(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
static long usage_us(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    long first = cpu_us(), last = first, last_usage = usage_us();
    volatile unsigned work = 0;
    while (going_on()) {
        for (int i = 0; i < 300000; i++) work += i;
        long now = cpu_us(), usage = usage_us();
        CHECK(now > last && usage >= last_usage);
        struct timespec thread;
        CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &thread) == 0 && thread.tv_sec * 1000000 + thread.tv_nsec / 1000 >= now);
        struct tms tms;
        CHECK(times(&tms) != -1 && tms.tms_utime >= 0);
        last = now;
        last_usage = usage;
    }
    CHECK(last - first <= elapsed_ms() * 1000 + 500000);
    return suite_end();
}
