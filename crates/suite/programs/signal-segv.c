/* SIGSEGV: the address and the code are right, siglongjmp leads out, a handler can mend the page. */
#include "suite.h"
static sigjmp_buf out;
static volatile siginfo_t seen;
static char *page;
static int mend;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    seen = *info;
    if (mend) {
        CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
        return;
    }
    siglongjmp(out, 1);
}
static void touch(volatile char *at, int code) {
    if (sigsetjmp(out, 1) == 0) {
        *at = 1;
        CHECK(!"no fault");
    }
    CHECK(seen.si_addr == at && seen.si_code == code);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGSEGV, handler, 0);
    for (int round = 0; going_on(); round++) {
        page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        mend = 0;
        touch(page + round % 4096, SEGV_ACCERR);
        touch((char *)8 + round % 100, SEGV_MAPERR);
        CHECK(munmap(page + 4096, 4096) == 0);
        touch(page + 4096 + 17, SEGV_MAPERR);
        mend = 1;
        *(volatile char *)(page + 99) = 42;
        CHECK(page[99] == 42 && seen.si_addr == page + 99 && munmap(page, 4096) == 0);
    }
    return suite_end();
}
