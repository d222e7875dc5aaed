/* Calls of the 32-bit kernel from a 64-bit program (int 0x80). Where the kernel has none they are a fault, here and there. */
#include "suite.h"
#include <setjmp.h>
static sigjmp_buf nowhere;
static void fault(int n) {
    (void)n;
    siglongjmp(nowhere, 1);
}
static long call32(long nr, long a, void *b, long c) {
    long ret;
    __asm__ volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
    return (int)ret;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2];
    CHECK(pipe(p) == 0);
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    signal(SIGSEGV, fault);
    int there = sigsetjmp(nowhere, 1) == 0;
    if (there)
        call32(20, 0, NULL, 0);
    signal(SIGSEGV, SIG_DFL);
    while (going_on()) {
        if (!there)
            continue;
        /* getpid, write, read, close; their numbers are those of other calls in 64 bits. */
        CHECK(call32(20, 0, NULL, 0) == getpid());
        strcpy(low, "thirty-two");
        CHECK(call32(4, p[1], low, 10) == 10);
        CHECK(call32(3, p[0], low + 100, 10) == 10);
        CHECK(memcmp(low, low + 100, 10) == 0);
        CHECK(call32(6, 9999, NULL, 0) == -EBADF);
    }
    return suite_end();
}
