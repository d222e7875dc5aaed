/* Deep recursion: the stack grows by megabytes and every frame is still right on the way back. */
#include "suite.h"
static __attribute__((noinline)) unsigned deep(unsigned depth, unsigned seed) {
    volatile unsigned frame[64];
    for (int i = 0; i < 64; i++) frame[i] = depth * 31 + i + seed;
    unsigned sum = depth ? deep(depth - 1, seed) : 0;
    for (int i = 0; i < 64; i++) CHECK(frame[i] == depth * 31 + i + seed);
    return sum + frame[depth % 64];
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (unsigned round = 0; going_on(); round++) {
        unsigned depth = 100 + round * 211 % 18000;
        CHECK(deep(depth, round) == deep(depth, round));
    }
    return suite_end();
}
