/* The eight AMX tiles and their shapes keep their contents, where the CPU has them. */
#include "xstate.h"
static unsigned char put[8][1024], got[8][1024];
static struct {
    uint8_t palette, start, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
} shape, shape_got;
static void through(void) {
    uint64_t stride = 64;
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
#define LOAD(n) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n ::"r"(put[n]), "r"(stride) : "memory")
#define STORE(n) __asm__ volatile("tilestored %%tmm" #n ", (%0,%1,1)" ::"r"(got[n]), "r"(stride) : "memory")
    LOAD(0); LOAD(1); LOAD(2); LOAD(3); LOAD(4); LOAD(5); LOAD(6); LOAD(7);
    __asm__ volatile(SPIN ::: "rcx", "cc");
    STORE(0); STORE(1); STORE(2); STORE(3); STORE(4); STORE(5); STORE(6); STORE(7);
    __asm__ volatile("sttilecfg %0\n tilerelease" : "=m"(shape_got));
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int have = (xcr0() >> 17 & 3) == 3 && cpu_has(7, 3, 24) && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    shape.palette = 1;
    for (int i = 0; i < 8; i++) shape.colsb[i] = 64, shape.rows[i] = 16;
    for (unsigned round = 1; going_on(); round++) {
        if (!have) {
            sleep_ms(5);
            continue;
        }
        fill(put, sizeof put, round);
        memset(got, 0, sizeof got);
        through();
        CHECK(memcmp(put, got, sizeof put) == 0 && memcmp(&shape, &shape_got, sizeof shape) == 0);
    }
    return suite_end();
}
