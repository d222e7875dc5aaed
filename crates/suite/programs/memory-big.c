/* 64 MB of a pattern, parts of it rewritten each round and verified all the time. */
#include "suite.h"
enum { WORDS = 8 << 20 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    uint64_t *at = malloc(WORDS * sizeof *at);
    CHECK(at);
    for (uint64_t i = 0; i < WORDS; i++) at[i] = i * 0x9e3779b97f4a7c15ull;
    static uint64_t generation[WORDS / 4096];
    for (unsigned round = 1; going_on(); round++) {
        unsigned block = round * 2654435761u % (WORDS / 4096);
        for (uint64_t i = block * 4096ul; i < block * 4096ul + 4096; i++) at[i] += 1;
        generation[block]++;
        unsigned check = round * 40503u % (WORDS / 4096);
        for (uint64_t i = check * 4096ul; i < check * 4096ul + 4096; i++)
            CHECK(at[i] == i * 0x9e3779b97f4a7c15ull + generation[check]);
    }
    for (uint64_t i = 0; i < WORDS; i++) CHECK(at[i] == i * 0x9e3779b97f4a7c15ull + generation[i / 4096]);
    return suite_end();
}
