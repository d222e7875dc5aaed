/* Hundreds of small areas with different protections and gaps between them, all alive at once. */
#include "suite.h"
enum { AREAS = 400, PAGE = 4096 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    unsigned char *at = mmap(NULL, AREAS * 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (int i = 0; i < AREAS; i++) {
        unsigned char *area = at + i * 3 * PAGE;
        fill(area, 2 * PAGE, i);
        CHECK(munmap(area + 2 * PAGE, PAGE) == 0 && mprotect(area, PAGE, PROT_READ) == 0);
    }
    for (unsigned round = 0; going_on(); round++) {
        for (int i = 0; i < AREAS; i++) {
            unsigned char *area = at + i * 3 * PAGE;
            CHECK(area[round % PAGE] == pattern_at(round % PAGE, i) && area[PAGE + round % PAGE] == pattern_at(PAGE + round % PAGE, i));
        }
        int i = round % AREAS;
        unsigned char *area = at + i * 3 * PAGE;
        CHECK(mprotect(area, PAGE, PROT_READ | PROT_WRITE) == 0);
        fill(area, 2 * PAGE, i);
        CHECK(mprotect(area, PAGE, PROT_READ) == 0 && filled(area, 2 * PAGE, i));
    }
    return suite_end();
}
