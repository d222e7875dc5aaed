/* A function that rewrites an instruction of its own text page. */
#include "suite.h"
__attribute__((noinline, aligned(4096))) static int constant(void) {
    int value;
    __asm__ volatile(".globl patch_here\npatch_here: mov $0x11223344, %0" : "=a"(value));
    return value;
}
extern unsigned char patch_here[];
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    void *page = (void *)((uintptr_t)patch_here & ~4095ul);
    CHECK(constant() == 0x11223344);
    CHECK(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    for (int round = 0; going_on(); round++) {
        for (int i = 0; i < 200; i++) {
            int want = round * 1000 + i;
            memcpy(patch_here + 1, &want, 4);
            __asm__ volatile("" ::: "memory");
            CHECK(constant() == want);
        }
        if (round % 16 == 0) CHECK(mprotect(page, 8192, PROT_READ | PROT_EXEC) == 0 && constant() == round * 1000 + 199);
        if (round % 16 == 0) CHECK(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    }
    return suite_end();
}
