/* Huge pages and children: a child begins with the memory of the moment and keeps it, whatever its parent writes; so does the parent. */
#include "suite.h"
enum { HUGE = 2 << 20, COUNT = 6 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    size_t size = COUNT * (size_t)HUGE;
    unsigned char *all = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    unsigned char *at = (unsigned char *)(((uintptr_t)all + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    CHECK(madvise(at, size, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    /* The last ones are written only once. */
    size_t still = 4 * (size_t)HUGE;
    for (size_t i = still; i < size; i += 64) at[i] = pattern_at(i, 7);
    for (unsigned round = 0; going_on(); round++) {
        for (size_t i = 0; i < still; i += 64) at[i] = pattern_at(i, round);
        for (long work = 0; work < 200; work++)
            for (size_t i = 0; i < size; i += 4096) CHECK(at[i] == pattern_at(i, i < still ? round : 7));
        /* Here and there one of those, and back: equal to what it was, but written. */
        for (size_t i = still; i < size; i += 97 * 4096) at[i] ^= 255;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (size_t i = 0; i < size; i += 64) {
                unsigned char wanted = pattern_at(i, i < still ? round : 7);
                if (i >= still && (i - still) % (97 * 4096) == 0) wanted ^= 255;
                if (at[i] != wanted) _exit(1);
            }
            memset(at, 1, size);
            _exit(0);
        }
        for (size_t i = still; i < size; i += 97 * 4096) at[i] ^= 255;
        for (size_t i = 0; i < still; i += 64) at[i] = pattern_at(i, round + 1);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (size_t i = 0; i < size; i += 64) CHECK(at[i] == pattern_at(i, i < still ? round + 1 : 7));
    }
    CHECK(munmap(all, size + HUGE) == 0);
    return suite_end();
}
