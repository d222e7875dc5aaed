/* mprotect: read-only, none, back again, per page; the contents stay. */
#include "suite.h"
static sigjmp_buf out;
static volatile int faults;
static void handler(int signal) {
    (void)signal;
    faults++;
    siglongjmp(out, 1);
}
static int writable(volatile unsigned char *at) {
    if (sigsetjmp(out, 1)) return 0;
    *at = *at;
    return 1;
}
static int readable(volatile unsigned char *at) {
    if (sigsetjmp(out, 1)) return 0;
    (void)*at;
    return 1;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGSEGV, handler, 0);
    enum { PAGES = 16 };
    unsigned char *at = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fill(at, PAGES * 4096, 3);
    for (int round = 0; going_on(); round++) {
        for (int i = 0; i < PAGES; i++) {
            int kind = (i + round) % 3;
            CHECK(mprotect(at + i * 4096, 4096, kind == 0 ? PROT_NONE : kind == 1 ? PROT_READ : PROT_READ | PROT_WRITE) == 0);
        }
        for (int i = 0; i < PAGES; i++) {
            int kind = (i + round) % 3;
            CHECK(readable(at + i * 4096 + 5) == (kind > 0) && writable(at + i * 4096 + 9) == (kind > 1));
        }
        CHECK(mprotect(at, PAGES * 4096, PROT_READ | PROT_WRITE) == 0 && filled(at, PAGES * 4096, 3));
    }
    CHECK_ERROR(mprotect(at + 1, 4096, PROT_READ), EINVAL);
    return suite_end();
}
