/* Floating point: a matrix product and a sum whose last bit must not change. */
#include "suite.h"
enum { N = 120 };
static double a[N][N], b[N][N], c[N][N];
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) a[i][j] = 1.0 / (i + j + 1), b[i][j] = (i - j) * 0.37;
    uint64_t first = 0;
    while (going_on()) {
        long double sum = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double x = 0;
                for (int k = 0; k < N; k++) x += a[i][k] * b[k][j];
                c[i][j] = x;
                sum += x / (1 + i * j);
            }
        double total = (double)sum;
        uint64_t now = digest(c, sizeof c) ^ digest(&total, sizeof total);
        if (!first) first = now;
        CHECK(now == first);
    }
    say("digest %016lx\n", first);
    return suite_end();
}
