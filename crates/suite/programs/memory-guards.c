/* Guards in memory (MADV_GUARD_INSTALL) outlive that what is around them is thrown away. */
#include "suite.h"
static sigjmp_buf back;
static void fault(int signal) { siglongjmp(back, signal); }
static int reads(volatile char *at) {
    if (sigsetjmp(back, 1)) return -1;
    return *at;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGSEGV, fault, 0);
    char *at = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 1, 64 * 4096);
    int guards = madvise(at + 16 * 4096, 4 * 4096, 102) == 0;
    for (int round = 0; going_on(); round++) {
        char *mine = at;
        mine[3] = 5;
        CHECK(madvise(mine, 64 * 4096, MADV_DONTNEED) == 0 && reads(mine + 3) == 0);
        if (guards) CHECK(reads(mine + 17 * 4096) == -1 && reads(mine + 19 * 4096 + 7) == -1);
        memset(mine, 1, 16 * 4096);
        CHECK(mine[20 * 4096] == 0);
        if (guards && round % 64 == 63) {
            CHECK(madvise(mine + 16 * 4096, 4096, 103) == 0 && reads(mine + 16 * 4096) == 0);
            CHECK(madvise(mine + 16 * 4096, 4096, 102) == 0 && reads(mine + 16 * 4096) == -1);
        }
        sleep_ms(1);
    }
    return suite_end();
}
