/* mlock and munlock, mincore: locked pages keep their contents. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 16 * 4096 };
    for (unsigned round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), vector[16];
        CHECK(at != MAP_FAILED && mlock(at, SIZE) == 0);
        fill(at, SIZE, round);
        CHECK(mincore(at, SIZE, vector) == 0);
        for (int i = 0; i < 16; i++) CHECK(vector[i] & 1);
        CHECK(munlock(at + 4096, 4096) == 0 && filled(at, SIZE, round) && munlock(at, SIZE) == 0);
        CHECK(mlock2(at, SIZE, MLOCK_ONFAULT) == 0 && filled(at, SIZE, round) && munmap(at, SIZE) == 0);
        CHECK_ERROR(mlock(at, SIZE), ENOMEM);
    }
    return suite_end();
}
