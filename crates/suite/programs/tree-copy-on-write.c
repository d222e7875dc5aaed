/* After fork both write the same pages, here and there and in turn: neither sees the other's bytes, sums are exact. */
#include "suite.h"
enum { SIZE = 1 << 20 };
static unsigned char *data;
static void scribble(unsigned seed) {
    for (unsigned i = 0, at = seed * 977; i < 3000; i++, at += 4093 + seed) data[at % SIZE] += seed + i;
}
static uint64_t expected(unsigned first, unsigned second) {
    static unsigned char copy[SIZE];
    unsigned char *real = data;
    data = copy;
    fill(copy, SIZE, first);
    scribble(second);
    data = real;
    return digest(copy, SIZE);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    data = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    for (unsigned round = 0; going_on(); round++) {
        int down[2], up[2];
        fill(data, SIZE, round);
        CHECK(pipe(down) == 0 && pipe(up) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            char byte;
            if (round % 2) read_all(down[0], &byte, 1);
            scribble(round + 2);
            uint64_t sum = digest(data, SIZE);
            write_all(up[1], &sum, sizeof sum);
            _exit(0);
        }
        if (round % 3) scribble(round + 1);
        if (round % 2) write_all(down[1], "x", 1);
        uint64_t theirs;
        read_all(up[0], &theirs, sizeof theirs);
        if (round % 3 == 0) scribble(round + 1);
        CHECK(theirs == expected(round, round + 2) && digest(data, SIZE) == expected(round, round + 1));
        CHECK(wait_for(pid) == 0 && digest(data, SIZE) == expected(round, round + 1));
        for (int i = 0; i < 2; i++) CHECK(close(down[i]) == 0 && close(up[i]) == 0);
    }
    return suite_end();
}
