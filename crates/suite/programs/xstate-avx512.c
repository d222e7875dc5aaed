/* The thirty-two ZMM registers and the mask registers keep their contents. */
#include "xstate.h"
enum { COUNT = 33, SIZE = 64 };
static unsigned char put[COUNT * SIZE] __attribute__((aligned(64))), got[COUNT * SIZE] __attribute__((aligned(64)));
__attribute__((target("avx512f,avx512bw"))) static void through(void) {
    __asm__ volatile(
        "vmovups 0(%0), %%zmm0\n"
        "vmovups 64(%0), %%zmm1\n"
        "vmovups 128(%0), %%zmm2\n"
        "vmovups 192(%0), %%zmm3\n"
        "vmovups 256(%0), %%zmm4\n"
        "vmovups 320(%0), %%zmm5\n"
        "vmovups 384(%0), %%zmm6\n"
        "vmovups 448(%0), %%zmm7\n"
        "vmovups 512(%0), %%zmm8\n"
        "vmovups 576(%0), %%zmm9\n"
        "vmovups 640(%0), %%zmm10\n"
        "vmovups 704(%0), %%zmm11\n"
        "vmovups 768(%0), %%zmm12\n"
        "vmovups 832(%0), %%zmm13\n"
        "vmovups 896(%0), %%zmm14\n"
        "vmovups 960(%0), %%zmm15\n"
        "vmovups 1024(%0), %%zmm16\n"
        "vmovups 1088(%0), %%zmm17\n"
        "vmovups 1152(%0), %%zmm18\n"
        "vmovups 1216(%0), %%zmm19\n"
        "vmovups 1280(%0), %%zmm20\n"
        "vmovups 1344(%0), %%zmm21\n"
        "vmovups 1408(%0), %%zmm22\n"
        "vmovups 1472(%0), %%zmm23\n"
        "vmovups 1536(%0), %%zmm24\n"
        "vmovups 1600(%0), %%zmm25\n"
        "vmovups 1664(%0), %%zmm26\n"
        "vmovups 1728(%0), %%zmm27\n"
        "vmovups 1792(%0), %%zmm28\n"
        "vmovups 1856(%0), %%zmm29\n"
        "vmovups 1920(%0), %%zmm30\n"
        "vmovups 1984(%0), %%zmm31\n"
        "kmovq 2048(%0), %%k0\n"
        "kmovq 2056(%0), %%k1\n"
        "kmovq 2064(%0), %%k2\n"
        "kmovq 2072(%0), %%k3\n"
        "kmovq 2080(%0), %%k4\n"
        "kmovq 2088(%0), %%k5\n"
        "kmovq 2096(%0), %%k6\n"
        "kmovq 2104(%0), %%k7\n"
        SPIN
        "vmovups %%zmm0, 0(%1)\n"
        "vmovups %%zmm1, 64(%1)\n"
        "vmovups %%zmm2, 128(%1)\n"
        "vmovups %%zmm3, 192(%1)\n"
        "vmovups %%zmm4, 256(%1)\n"
        "vmovups %%zmm5, 320(%1)\n"
        "vmovups %%zmm6, 384(%1)\n"
        "vmovups %%zmm7, 448(%1)\n"
        "vmovups %%zmm8, 512(%1)\n"
        "vmovups %%zmm9, 576(%1)\n"
        "vmovups %%zmm10, 640(%1)\n"
        "vmovups %%zmm11, 704(%1)\n"
        "vmovups %%zmm12, 768(%1)\n"
        "vmovups %%zmm13, 832(%1)\n"
        "vmovups %%zmm14, 896(%1)\n"
        "vmovups %%zmm15, 960(%1)\n"
        "vmovups %%zmm16, 1024(%1)\n"
        "vmovups %%zmm17, 1088(%1)\n"
        "vmovups %%zmm18, 1152(%1)\n"
        "vmovups %%zmm19, 1216(%1)\n"
        "vmovups %%zmm20, 1280(%1)\n"
        "vmovups %%zmm21, 1344(%1)\n"
        "vmovups %%zmm22, 1408(%1)\n"
        "vmovups %%zmm23, 1472(%1)\n"
        "vmovups %%zmm24, 1536(%1)\n"
        "vmovups %%zmm25, 1600(%1)\n"
        "vmovups %%zmm26, 1664(%1)\n"
        "vmovups %%zmm27, 1728(%1)\n"
        "vmovups %%zmm28, 1792(%1)\n"
        "vmovups %%zmm29, 1856(%1)\n"
        "vmovups %%zmm30, 1920(%1)\n"
        "vmovups %%zmm31, 1984(%1)\n"
        "kmovq %%k0, 2048(%1)\n"
        "kmovq %%k1, 2056(%1)\n"
        "kmovq %%k2, 2064(%1)\n"
        "kmovq %%k3, 2072(%1)\n"
        "kmovq %%k4, 2080(%1)\n"
        "kmovq %%k5, 2088(%1)\n"
        "kmovq %%k6, 2096(%1)\n"
        "kmovq %%k7, 2104(%1)\n"
        "vzeroupper\n"
        :: "r"(put), "r"(got) : "rcx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 0; going_on(); round++) {
        if ((xcr0() & 0xe6) != 0xe6 || !cpu_has(7, 1, 30)) {
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
