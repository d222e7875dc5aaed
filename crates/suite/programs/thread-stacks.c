/* Stacks of threads: of a given size, given memory, a guard that faults, and deep recursion in each. */
// suite: flags -pthread
#include "threads.h"
static __thread sigjmp_buf out;
static __thread volatile char *fault_at;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    fault_at = info->si_addr;
    siglongjmp(out, 1);
}
static __attribute__((noinline)) unsigned deep(unsigned n) {
    volatile unsigned char here[400];
    for (size_t i = 0; i < sizeof here; i++) here[i] = (unsigned char)(n + i);
    unsigned below = n ? deep(n - 1) : 0;
    for (size_t i = 0; i < sizeof here; i++) CHECK(here[i] == (unsigned char)(n + i));
    return below + 1;
}
static void *work(void *number) {
    pthread_attr_t mine;
    size_t size, guard;
    void *low;
    CHECK(pthread_getattr_np(pthread_self(), &mine) == 0 && pthread_attr_getstack(&mine, &low, &size) == 0);
    CHECK(pthread_attr_getguardsize(&mine, &guard) == 0 && (char *)&mine > (char *)low);
    CHECK(deep((long)number) == (long)number + 1);
    if (guard >= 4096) {
        volatile char *end = (char *)low - 8;
        if (!sigsetjmp(out, 1)) *end = 1;
        CHECK(fault_at == end);
    }
    CHECK(pthread_attr_destroy(&mine) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = handler;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    enum { SIZE = 256 << 10 };
    static char given[SIZE] __attribute__((aligned(4096)));
    pthread_attr_t attributes[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_attr_init(&attributes[i]) == 0);
    CHECK(pthread_attr_setstacksize(&attributes[0], SIZE) == 0 && pthread_attr_setguardsize(&attributes[0], 65536) == 0);
    CHECK(pthread_attr_setstack(&attributes[1], given, SIZE) == 0);
    while (going_on()) {
        pthread_t threads[3];
        for (long i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], &attributes[i], work, (void *)(100 + i * 50)) == 0);
        for (int i = 0; i < 3; i++) join(threads[i]);
    }
    return suite_end();
}
