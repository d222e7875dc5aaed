/* mremap: grow, shrink, move to a wanted place; contents go along, new pages are zero. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { PAGE = 4096 };
    for (unsigned round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, 20 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, 20 * PAGE, round);
        unsigned char *big = mremap(at, 20 * PAGE, 200 * PAGE, MREMAP_MAYMOVE);
        CHECK(big != MAP_FAILED && filled(big, 20 * PAGE, round));
        for (int i = 20 * PAGE; i < 200 * PAGE; i += 997) CHECK(big[i] == 0);
        fill(big, 200 * PAGE, round);
        CHECK(mremap(big, 200 * PAGE, 50 * PAGE, 0) == big && filled(big, 50 * PAGE, round));
        unsigned char *room = mmap(NULL, 60 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(room != MAP_FAILED);
        unsigned char *moved = mremap(big, 50 * PAGE, 50 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 5 * PAGE);
        CHECK(moved == room + 5 * PAGE && filled(moved, 50 * PAGE, round));
        CHECK_ERROR(mremap(big, 50 * PAGE, 60 * PAGE, MREMAP_MAYMOVE), EFAULT);
        unsigned char *twin = mremap(moved, 50 * PAGE, 50 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
        CHECK(twin != MAP_FAILED && filled(twin, 50 * PAGE, round) && moved[0] == 0 && moved[49 * PAGE] == 0);
        CHECK(munmap(twin, 50 * PAGE) == 0 && munmap(room, 60 * PAGE) == 0);
    }
    return suite_end();
}
