/* A pipe to oneself: short messages stay whole and in order. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2];
    char out[4000], in[4000];
    CHECK(pipe(p) == 0);
    for (unsigned round = 0; going_on(); round++) {
        size_t n = 1 + round * 37 % sizeof out;
        fill(out, n, round);
        CHECK(write(p[1], out, n) == (ssize_t)n);
        if (n > 100) CHECK(write(p[1], out, 100) == 100);
        CHECK(read(p[0], in, n) == (ssize_t)n && filled(in, n, round));
        if (n > 100) CHECK(read(p[0], in, sizeof in) == 100 && filled(in, 100, round));
    }
    return suite_end();
}
