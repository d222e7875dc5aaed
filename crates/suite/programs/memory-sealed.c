/* Sealed memory stays as it is (mseal). */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *at = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fill(at, 5 * 4096, 1);
    CHECK(mprotect(at + 4096, 4096, PROT_READ) == 0);
    int sealed = syscall(462, at + 4096, 4096, 0) == 0;
    for (int round = 0; going_on(); round++) {
        if (sealed) {
            CHECK_ERROR(munmap(at + 4096, 4096), EPERM);
            CHECK_ERROR(mprotect(at + 4096, 4096, PROT_READ | PROT_WRITE), EPERM);
            CHECK_ERROR(madvise(at + 4096, 4096, MADV_DONTNEED), EPERM);
            CHECK_ERROR(munmap(at, 5 * 4096), EPERM);
        }
        CHECK(filled(at, 5 * 4096, 1));
    }
    return suite_end();
}
