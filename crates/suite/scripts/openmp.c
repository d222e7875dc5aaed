/* OpenMP: parallel loops, reductions, tasks, critical parts, ordered output; whole numbers, so that the order changes nothing. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum { N = 220 };
static uint32_t a[N][N], b[N][N], c[N][N];
static uint64_t fibonacci(int n) {
    if (n < 2) return n;
    if (n < 15) return fibonacci(n - 1) + fibonacci(n - 2);
    uint64_t x, y;
#pragma omp task shared(x)
    x = fibonacci(n - 1);
#pragma omp task shared(y)
    y = fibonacci(n - 2);
#pragma omp taskwait
    return x + y;
}
static uint64_t multiply(int round) {
    uint64_t sum = 0;
#pragma omp parallel for schedule(dynamic, 4)
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) a[i][k] = i * 31 + k + round, b[i][k] = i ^ k * 7;
#pragma omp parallel for schedule(guided) reduction(^ : sum)
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            uint32_t s = 0;
            for (int n = 0; n < N; n++) s += a[i][n] * b[n][k];
            c[i][k] = s;
            sum ^= (uint64_t)s << (i % 32);
        }
    return sum;
}
static int collatz(void) {
    int best = 0, where = 0;
#pragma omp parallel for schedule(static, 1000)
    for (int i = 1; i < 1500000; i++) {
        int steps = 0;
        for (uint64_t n = i; n != 1; steps++) n = n % 2 ? 3 * n + 1 : n / 2;
        if (steps < 300) continue;
#pragma omp critical
        if (steps > best || (steps == best && i < where)) best = steps, where = i;
    }
    return where;
}
int main(void) {
    omp_set_dynamic(0);
    omp_set_num_threads(4);
    uint64_t result = 0, phases = 0;
    for (int round = 0; round < 100; round++) result = result * 31 + multiply(round);
    printf("product %016llx, longest %d\n", (unsigned long long)result, collatz());
#pragma omp parallel
#pragma omp single
    result = fibonacci(35);
    printf("fibonacci %llu\n", (unsigned long long)result);
#pragma omp parallel for ordered schedule(dynamic)
    for (int i = 0; i < 12; i++) {
        unsigned x = i;
        for (int n = 0; n < 100000; n++) x = x * 1664525 + 1013904223;
#pragma omp ordered
        printf("%d %u\n", i, x);
    }
#pragma omp parallel
    for (int i = 0; i < 2000; i++) {
#pragma omp barrier
#pragma omp atomic
        phases += omp_get_thread_num();
#pragma omp barrier
        if (phases != 6 * (uint64_t)(i + 1)) abort();
    }
    printf("phases %llu\n", (unsigned long long)phases);
    return 0;
}
