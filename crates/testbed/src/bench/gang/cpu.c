/* `pando bench gang`: a rank that computes. Says when it had to wait for its CPU: so many microseconds of CLOCK_MONOTONIC at which it went on. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    double gap_us = argc > 2 ? atof(argv[2]) : 1e9;
    static double went_on[100000];
    int waits = 0;
    volatile unsigned long x = 1;
    double last = now_us();
    for (unsigned long i = 0; i < rounds; i++) {
        for (int j = 0; j < 10000; j++) x = x * 6364136223846793005ul + 1;
        double now = now_us();
        if (now - last > gap_us && waits < 100000) went_on[waits++] = now;
        last = now;
    }
    for (int i = 0; i < waits; i++) printf("%.1f\n", went_on[i]);
    return 0;
}
