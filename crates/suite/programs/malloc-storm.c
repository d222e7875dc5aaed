/* malloc, realloc and free of all sizes at random, each block verified when it goes. */
#include "suite.h"
enum { BLOCKS = 500 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static struct {
        unsigned char *at;
        size_t size;
        unsigned seed;
    } block[BLOCKS];
    uint64_t state = 88172645463325252ull;
    for (unsigned round = 0; going_on(); round++) {
        for (int step = 0; step < 50; step++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            unsigned i = state % BLOCKS;
            size_t size = state >> 32 & 15 ? state >> 40 & 2047 : state >> 40 & 0x3ffff;
            if (block[i].at) CHECK(filled(block[i].at, block[i].size, block[i].seed));
            if (block[i].at && state >> 20 & 1) {
                size_t keep = size < block[i].size ? size : block[i].size;
                block[i].at = realloc(block[i].at, size + 1);
                CHECK(block[i].at && filled(block[i].at, keep, block[i].seed));
            } else {
                free(block[i].at);
                block[i].at = malloc(size + 1);
            }
            block[i].size = size;
            block[i].seed = round;
            CHECK(block[i].at);
            fill(block[i].at, size, round);
        }
    }
    for (int i = 0; i < BLOCKS; i++) CHECK(!block[i].at || filled(block[i].at, block[i].size, block[i].seed));
    return suite_end();
}
