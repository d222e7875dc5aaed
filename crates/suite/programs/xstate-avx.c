/* The sixteen YMM registers keep their contents. */
#include "xstate.h"
enum { COUNT = 16, SIZE = 32 };
static unsigned char put[COUNT * SIZE] __attribute__((aligned(64))), got[COUNT * SIZE] __attribute__((aligned(64)));
static void through(void) {
    __asm__ volatile(
        "vmovups 0(%0), %%ymm0\n"
        "vmovups 32(%0), %%ymm1\n"
        "vmovups 64(%0), %%ymm2\n"
        "vmovups 96(%0), %%ymm3\n"
        "vmovups 128(%0), %%ymm4\n"
        "vmovups 160(%0), %%ymm5\n"
        "vmovups 192(%0), %%ymm6\n"
        "vmovups 224(%0), %%ymm7\n"
        "vmovups 256(%0), %%ymm8\n"
        "vmovups 288(%0), %%ymm9\n"
        "vmovups 320(%0), %%ymm10\n"
        "vmovups 352(%0), %%ymm11\n"
        "vmovups 384(%0), %%ymm12\n"
        "vmovups 416(%0), %%ymm13\n"
        "vmovups 448(%0), %%ymm14\n"
        "vmovups 480(%0), %%ymm15\n"
        SPIN
        "vmovups %%ymm0, 0(%1)\n"
        "vmovups %%ymm1, 32(%1)\n"
        "vmovups %%ymm2, 64(%1)\n"
        "vmovups %%ymm3, 96(%1)\n"
        "vmovups %%ymm4, 128(%1)\n"
        "vmovups %%ymm5, 160(%1)\n"
        "vmovups %%ymm6, 192(%1)\n"
        "vmovups %%ymm7, 224(%1)\n"
        "vmovups %%ymm8, 256(%1)\n"
        "vmovups %%ymm9, 288(%1)\n"
        "vmovups %%ymm10, 320(%1)\n"
        "vmovups %%ymm11, 352(%1)\n"
        "vmovups %%ymm12, 384(%1)\n"
        "vmovups %%ymm13, 416(%1)\n"
        "vmovups %%ymm14, 448(%1)\n"
        "vmovups %%ymm15, 480(%1)\n"
        "vzeroupper\n"
        :: "r"(put), "r"(got) : "rcx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 0; going_on(); round++) {
        if ((xcr0() & 6) != 6) {
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
