/* madvise: DONTNEED gives zeros, FREE gives zeros or the old page, POPULATE and the hints change nothing. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 64 * 4096 };
    unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (unsigned round = 0; going_on(); round++) {
        fill(at, SIZE, round);
        CHECK(madvise(at + SIZE / 4, SIZE / 4, MADV_DONTNEED) == 0);
        CHECK(filled(at, SIZE / 4, round));
        for (int i = SIZE / 4; i < SIZE / 2; i += 100) CHECK(at[i] == 0);
        for (int i = SIZE / 2; i < SIZE; i++) CHECK(at[i] == pattern_at(i, round));
        CHECK(madvise(at, SIZE / 2, MADV_FREE) == 0);
        for (int i = 0; i < SIZE / 4; i += 4096) CHECK(at[i + 7] == 0 || at[i + 7] == pattern_at(i + 7, round));
        at[0] = 1;
        CHECK(at[0] == 1 && (madvise(at, SIZE, MADV_POPULATE_WRITE) == 0 || errno == EINVAL));
        CHECK(madvise(at, SIZE, MADV_WILLNEED) == 0 && madvise(at, SIZE, MADV_SEQUENTIAL) == 0 && madvise(at, SIZE, MADV_NORMAL) == 0);
        CHECK(madvise(at, SIZE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
        CHECK_ERROR(madvise(at + 1, 4096, MADV_DONTNEED), EINVAL);
    }
    return suite_end();
}
