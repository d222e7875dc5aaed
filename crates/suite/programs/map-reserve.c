/* A large reservation (64 GB, NORESERVE) touched here and there, as runtimes do. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    size_t size = 64ul << 30;
    unsigned char *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    for (size_t round = 0; going_on(); round++) {
        size_t where = (round * 2654435761u % 16000) << 22;
        CHECK(mprotect(at + where, 65536, PROT_READ | PROT_WRITE) == 0);
        fill(at + where, 65536, round);
        CHECK(filled(at + where, 65536, round) && madvise(at + where, 65536, MADV_DONTNEED) == 0);
        CHECK(at[where + 70] == 0 && mprotect(at + where, 65536, PROT_NONE) == 0);
    }
    CHECK(munmap(at, size) == 0);
    return suite_end();
}
