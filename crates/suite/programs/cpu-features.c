/* What CPUID, XGETBV and the auxiliary vector say of the CPU is usable all the time; the time stamp counts up. */
#include "xstate.h"
#include <sys/auxv.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    uint64_t first = xcr0();
    unsigned long hwcap = getauxval(AT_HWCAP), sysinfo = getauxval(AT_SYSINFO_EHDR);
    unsigned char random[16];
    memcpy(random, (void *)getauxval(AT_RANDOM), 16);
    while (going_on()) {
        CHECK((xcr0() & first) == first && getauxval(AT_HWCAP) == hwcap && getauxval(AT_PAGESZ) == 4096);
        CHECK(memcmp(random, (void *)getauxval(AT_RANDOM), 16) == 0);
        if (sysinfo) CHECK(memcmp((void *)sysinfo, "\177ELF", 4) == 0);
        uint64_t a = __builtin_ia32_rdtsc(), b = __builtin_ia32_rdtsc();
        CHECK(a != 0 && b != 0);
    }
    return suite_end();
}
