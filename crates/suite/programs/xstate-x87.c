/* The x87 stack (eight values, tags and top) and MMX keep their contents. */
#include "xstate.h"
static long double put[8], got[8];
static uint64_t mput[8], mgot[8];
static void through(void) {
    __asm__ volatile(
        "fninit\n"
        "fldt (%0)\n fldt 16(%0)\n fldt 32(%0)\n fldt 48(%0)\n fldt 64(%0)\n fldt 80(%0)\n fldt 96(%0)\n fldt 112(%0)\n" SPIN
        "fstpt 112(%1)\n fstpt 96(%1)\n fstpt 80(%1)\n fstpt 64(%1)\n fstpt 48(%1)\n fstpt 32(%1)\n fstpt 16(%1)\n fstpt (%1)\n"
        :: "r"(put), "r"(got) : "rcx", "memory", "cc");
}
static void mmx(void) {
    __asm__ volatile(
        "movq (%0), %%mm0\n movq 8(%0), %%mm1\n movq 16(%0), %%mm2\n movq 24(%0), %%mm3\n"
        "movq 32(%0), %%mm4\n movq 40(%0), %%mm5\n movq 48(%0), %%mm6\n movq 56(%0), %%mm7\n" SPIN
        "movq %%mm0, (%1)\n movq %%mm1, 8(%1)\n movq %%mm2, 16(%1)\n movq %%mm3, 24(%1)\n"
        "movq %%mm4, 32(%1)\n movq %%mm5, 40(%1)\n movq %%mm6, 48(%1)\n movq %%mm7, 56(%1)\n emms\n"
        :: "r"(mput), "r"(mgot) : "rcx", "memory", "cc");
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 1; going_on(); round++) {
        for (int i = 0; i < 8; i++) put[i] = (long double)(round + i) / (i + 3);
        through();
        for (int i = 0; i < 8; i++) CHECK(memcmp(&put[i], &got[i], 10) == 0);
        fill(mput, sizeof mput, round);
        mmx();
        CHECK(memcmp(mput, mgot, sizeof mput) == 0);
    }
    return suite_end();
}
