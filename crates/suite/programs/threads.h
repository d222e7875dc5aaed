/* What the programs with several threads share: threads that work till the main one says stop, and check as they go. */
#ifndef THREADS_H
#define THREADS_H
#include "suite.h"
#include <pthread.h>
#include <semaphore.h>

/* Main sets it; the others end their loops. */
static int stop;

static __attribute__((unused)) int stopped(void) { return __atomic_load_n(&stop, __ATOMIC_SEQ_CST); }

static __attribute__((unused)) void stop_all(void) { __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST); }

/* A thread with a number as its argument. */
static __attribute__((unused)) pthread_t start(void *(*body)(void *), long number) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, (void *)number) == 0);
    return thread;
}

/* Waits for a thread and gives what it returned, a number. */
static __attribute__((unused)) long join(pthread_t thread) {
    void *result;
    CHECK(pthread_join(thread, &result) == 0);
    return (long)result;
}

/* Some milliseconds from now, by a clock. */
static __attribute__((unused)) struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static __attribute__((unused)) int before(struct timespec a, struct timespec b) {
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}
#endif
