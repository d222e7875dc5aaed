/* A function that fills registers, computes for a while without calls, and checks them: the frame of xstate-*.c. */
#include "suite.h"
#include <cpuid.h>
static int cpu_has(unsigned leaf, int reg, int bit) {
    unsigned r[4];
    return __get_cpuid_count(leaf, 0, &r[0], &r[1], &r[2], &r[3]) && r[reg] >> bit & 1;
}
static __attribute__((unused)) uint64_t xcr0(void) {
    if (!cpu_has(1, 2, 27)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
/* Some 2 ms of work that touches no vector register. */
#define SPIN "mov $3000000, %%rcx\n 77: dec %%rcx\n jnz 77b\n"
