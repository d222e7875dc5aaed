/* All that is mapped from now on is locked: nothing of it can be thrown away. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(mlockall(MCL_FUTURE) == 0);
    for (int round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, 8192, round);
        CHECK_ERROR(madvise(at, 4096, MADV_DONTNEED), EINVAL);
        CHECK(filled(at, 8192, round) && munmap(at, 8192) == 0);
    }
    return suite_end();
}
