/* brk and sbrk: the heap grows and shrinks, keeps what stays and is zero where it is new. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    unsigned char *base = sbrk(0);
    CHECK(base != (void *)-1);
    base = (unsigned char *)(((uintptr_t)base + 4095) & ~4095ul);
    CHECK(brk(base) == 0);
    for (unsigned round = 0; going_on(); round++) {
        CHECK(sbrk(300000) == base);
        fill(base, 300000, round);
        CHECK(sbrk(-200000) == base + 300000 && sbrk(0) == base + 100000 && filled(base, 100000, round));
        CHECK(sbrk(400000) == base + 100000);
        for (int i = 102400; i < 500000; i += 333) CHECK(base[i] == 0);
        fill(base, 500000, round);
        CHECK(filled(base, 500000, round) && brk(base) == 0);
    }
    return suite_end();
}
