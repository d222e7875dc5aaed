/* getcpu and sched_getcpu give a CPU that the mask allows; sched_yield; affinity and policy are kept. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    cpu_set_t first, now;
    CHECK(sched_getaffinity(0, sizeof first, &first) == 0 && CPU_COUNT(&first) >= 1);
    int policy = sched_getscheduler(0), nice_value = getpriority(PRIO_PROCESS, 0);
    while (going_on()) {
        unsigned cpu = 9999, node = 9999;
        CHECK(getcpu(&cpu, &node) == 0 && cpu < 4096 && node < 1024);
        CHECK(sched_getcpu() >= 0);
        CHECK(sched_yield() == 0);
        CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&first, &now));
        CHECK(sched_getscheduler(0) == policy && getpriority(PRIO_PROCESS, 0) == nice_value);
        struct sched_param param;
        CHECK(sched_getparam(0, &param) == 0 && param.sched_priority == 0 && sysconf(_SC_NPROCESSORS_ONLN) >= 1);
    }
    CHECK(setpriority(PRIO_PROCESS, 0, nice_value + 3) == 0 && getpriority(PRIO_PROCESS, 0) == nice_value + 3);
    return suite_end();
}
