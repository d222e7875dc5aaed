/* Transparent huge pages: asked for, written, split by mprotect and munmap, collapsed again. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    size_t huge = 2 << 20, size = 8 * huge;
    for (unsigned round = 0; going_on(); round++) {
        unsigned char *map = mmap(NULL, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED);
        unsigned char *at = (unsigned char *)(((uintptr_t)map + huge - 1) & ~(huge - 1));
        CHECK(madvise(at, size, MADV_HUGEPAGE) == 0 || errno == EINVAL);
        for (size_t i = 0; i < size; i += 512) at[i] = pattern_at(i, round);
        CHECK(mprotect(at + huge + 4096, 4096, PROT_READ) == 0 && munmap(at + 3 * huge + 8192, 4096) == 0);
        CHECK(madvise(at + 5 * huge + 12288, 8192, MADV_DONTNEED) == 0);
        for (size_t i = 0; i < size; i += 512) {
            if (i >= 3 * huge + 8192 && i < 3 * huge + 12288) continue;
            int dropped = i >= 5 * huge + 12288 && i < 5 * huge + 12288 + 8192;
            CHECK(at[i] == (dropped ? 0 : pattern_at(i, round)));
        }
        CHECK(munmap(map, size + huge) == 0);
    }
    return suite_end();
}
