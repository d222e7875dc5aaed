/* A storm of threads: some at once, with results, that start others themselves; stacks are used again. */
// suite: flags -pthread
#include "threads.h"
static void *leaf(void *number) {
    volatile char deep[2000];
    memset((char *)deep, (int)(long)number, sizeof deep);
    long sum = 0;
    for (size_t i = 0; i < sizeof deep; i++) sum += deep[i];
    return (void *)(sum + (long)number);
}
static void *branch(void *number) {
    long n = (long)number, sum = 0;
    pthread_t leaves[3];
    for (int i = 0; i < 3; i++) leaves[i] = start(leaf, (n + i) % 100);
    for (int i = 2; i >= 0; i--) {
        long got = join(leaves[i]);
        CHECK(got == (n + i) % 100 * 2001);
        sum += got;
    }
    return (void *)sum;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (long round = 0; going_on(); round++) {
        pthread_t branches[3];
        for (int i = 0; i < 3; i++) branches[i] = start(branch, round + i);
        for (int i = 0; i < 3; i++) {
            long want = 0, n = round + i;
            for (int k = 0; k < 3; k++) want += (n + k) % 100 * 2001;
            CHECK(join(branches[i]) == want);
        }
        CHECK(pthread_create(&branches[0], NULL, leaf, (void *)7) == 0);
        void *result;
        while (pthread_tryjoin_np(branches[0], &result) == EBUSY) sched_yield();
        CHECK((long)result == 7 * 2001);
    }
    return suite_end();
}
