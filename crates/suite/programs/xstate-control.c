/* Rounding and exception masks: MXCSR and the x87 control word stay as set, and results follow them. */
// suite: flags -lm
#include "xstate.h"
#include <fenv.h>
static volatile double one = 1, three = 3;
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    for (unsigned round = 0; going_on(); round++) {
        unsigned mxcsr = 0x1f80 | (round & 3) << 13 | (round >> 2 & 1) << 15 | (round >> 3 & 1) << 6, mxcsr_now;
        unsigned short cw = 0x37f & ~((round & 1) << 8), cw_now;
        cw |= (round & 3) << 10;
        __asm__ volatile("ldmxcsr %2\n fldcw %3\n" SPIN "stmxcsr %0\n fnstcw %1"
                         : "=m"(mxcsr_now), "=m"(cw_now) : "m"(mxcsr), "m"(cw) : "rcx", "cc");
        CHECK(mxcsr == mxcsr_now && cw == cw_now);
        unsigned plain = 0x1f80;
        __asm__ volatile("ldmxcsr %0\n fninit" ::"m"(plain));
        CHECK(fesetround(modes[round & 3]) == 0);
        double down = one / three;
        sleep_ms(1);
        CHECK(fegetround() == modes[round & 3] && down == one / three);
        CHECK((down > 0.33333333333333333) == ((round & 3) == 2) && fesetround(FE_TONEAREST) == 0);
    }
    return suite_end();
}
