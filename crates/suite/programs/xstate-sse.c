/* The sixteen XMM registers keep their contents. */
#include "xstate.h"
enum { COUNT = 16, SIZE = 16 };
static unsigned char put[COUNT * SIZE] __attribute__((aligned(64))), got[COUNT * SIZE] __attribute__((aligned(64)));
static void through(void) {
    __asm__ volatile(
        "movups 0(%0), %%xmm0\n"
        "movups 16(%0), %%xmm1\n"
        "movups 32(%0), %%xmm2\n"
        "movups 48(%0), %%xmm3\n"
        "movups 64(%0), %%xmm4\n"
        "movups 80(%0), %%xmm5\n"
        "movups 96(%0), %%xmm6\n"
        "movups 112(%0), %%xmm7\n"
        "movups 128(%0), %%xmm8\n"
        "movups 144(%0), %%xmm9\n"
        "movups 160(%0), %%xmm10\n"
        "movups 176(%0), %%xmm11\n"
        "movups 192(%0), %%xmm12\n"
        "movups 208(%0), %%xmm13\n"
        "movups 224(%0), %%xmm14\n"
        "movups 240(%0), %%xmm15\n"
        SPIN
        "movups %%xmm0, 0(%1)\n"
        "movups %%xmm1, 16(%1)\n"
        "movups %%xmm2, 32(%1)\n"
        "movups %%xmm3, 48(%1)\n"
        "movups %%xmm4, 64(%1)\n"
        "movups %%xmm5, 80(%1)\n"
        "movups %%xmm6, 96(%1)\n"
        "movups %%xmm7, 112(%1)\n"
        "movups %%xmm8, 128(%1)\n"
        "movups %%xmm9, 144(%1)\n"
        "movups %%xmm10, 160(%1)\n"
        "movups %%xmm11, 176(%1)\n"
        "movups %%xmm12, 192(%1)\n"
        "movups %%xmm13, 208(%1)\n"
        "movups %%xmm14, 224(%1)\n"
        "movups %%xmm15, 240(%1)\n"
        :: "r"(put), "r"(got) : "rcx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 0; going_on(); round++) {
        if (0) {
            sleep_ms(5);
            continue;
        }
        fill(put, sizeof put, round);
        memset(got, 0, sizeof got);
        through();
        CHECK(memcmp(put, got, sizeof put) == 0);
    }
    return suite_end();
}
