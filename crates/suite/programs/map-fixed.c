/* MAP_FIXED over one's own pages; MAP_FIXED_NOREPLACE refuses; a hint is taken when free. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { PAGE = 4096 };
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *at = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(at != MAP_FAILED);
    for (unsigned round = 0; going_on(); round++) {
        fill(at, 32 * PAGE, round);
        int from = round % 20, n = 1 + round % 11;
        CHECK(mmap(at + from * PAGE, n * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == at + from * PAGE);
        for (int i = 0; i < 32 * PAGE; i += 61) {
            int fresh = i >= from * PAGE && i < (from + n) * PAGE;
            CHECK(at[i] == (fresh ? 0 : pattern_at(i, round)));
        }
        CHECK_ERROR(mmap(at + 2 * PAGE, PAGE, PROT_READ, flags | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
        unsigned char *wish = (unsigned char *)0x7a0000000000ul + (round % 50) * 0x100000;
        unsigned char *got = mmap(wish, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        CHECK(got != MAP_FAILED && got[1] == 0);
        got[1] = 5;
        CHECK(got[1] == 5 && munmap(got, PAGE) == 0);
    }
    return suite_end();
}
