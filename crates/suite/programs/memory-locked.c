/* Locked memory is not thrown away. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 8 * 4096, KIND = MAP_PRIVATE | MAP_ANONYMOUS };
    for (int round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, KIND, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, SIZE, round);
        CHECK(mlock(at + 4096, 8192) == 0);
        CHECK_ERROR(madvise(at + 4096, 4096, MADV_DONTNEED), EINVAL);
        CHECK(filled(at, SIZE, round) && munlock(at, SIZE) == 0);
        CHECK(madvise(at + 4096, 4096, MADV_DONTNEED) == 0 && at[4096] == 0 && munmap(at, SIZE) == 0);
        at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, KIND | MAP_LOCKED, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, SIZE, round);
        CHECK_ERROR(madvise(at, 4096, MADV_DONTNEED), EINVAL);
        CHECK(filled(at, SIZE, round) && munmap(at, SIZE) == 0);
    }
    return suite_end();
}
