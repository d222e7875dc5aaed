/* fork with 32 MB of written memory: the child has all of it, changes parts, and the parent's stays. */
#include "suite.h"
enum { MB = 1 << 20, SIZE = 32 * MB };
/* One word of each kilobyte says which it is. */
static void mark(uint64_t *at, uint64_t seed) {
    for (size_t i = 0; i < SIZE / 8; i += 128) at[i] = seed * 1000003 + i;
}
static int marked(const uint64_t *at, uint64_t seed) {
    for (size_t i = 0; i < SIZE / 8; i += 128)
        if (at[i] != seed * 1000003 + i) return 0;
    return 1;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    uint64_t *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (uint64_t round = 0; going_on(); round++) {
        mark(at, round);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            if (!marked(at, round)) _exit(1);
            mark(at, round + 7);
            _exit(marked(at, round + 7) ? 55 : 2);
        }
        if (round % 2) mark(at, round + 3);
        CHECK(WEXITSTATUS(wait_for(pid)) == 55 && marked(at, round % 2 ? round + 3 : round));
    }
    return suite_end();
}
