/* The FS and GS bases: by arch_prctl, and by rdfsbase and wrgsbase where they are allowed. */
#include "suite.h"
#include <asm/prctl.h>
#include <sys/auxv.h>
static uint64_t through_gs(void) {
    uint64_t value;
    __asm__ volatile("mov %%gs:8, %0" : "=r"(value));
    return value;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static uint64_t area[2][2];
    static __thread uint64_t local = 77;
    unsigned long fs, gs;
    int instructions = getauxval(AT_HWCAP2) >> 1 & 1;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0 && fs == (unsigned long)__builtin_thread_pointer());
    for (uint64_t round = 0; going_on(); round++) {
        area[0][1] = round, area[1][1] = ~round;
        CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, area[0]) == 0);
        for (int i = 0; i < 20000; i++) CHECK(through_gs() == round);
        CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0 && gs == (unsigned long)area[0]);
        if (instructions) {
            __asm__ volatile("wrgsbase %0" ::"r"(area[1]));
            for (int i = 0; i < 20000; i++) CHECK(through_gs() == ~round);
            __asm__ volatile("rdgsbase %0\n rdfsbase %1" : "=r"(gs), "=r"(fs));
            CHECK(gs == (unsigned long)area[1] && fs == (unsigned long)__builtin_thread_pointer());
        }
        CHECK(local == 77 + round);
        local++;
    }
    return suite_end();
}
