/* PROT_NONE guards between buffers: walking off either end faults at the exact byte. */
#include "suite.h"
static sigjmp_buf out;
static char *volatile fault;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    fault = info->si_addr;
    siglongjmp(out, 1);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGSEGV, handler, 0);
    enum { PAGE = 4096 };
    char *at = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED && mprotect(at + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE) == 0);
    for (int round = 0; going_on(); round++) {
        volatile char *volatile walk = at + PAGE;
        if (sigsetjmp(out, 1) == 0)
            for (;; walk++) *walk = round;
        CHECK(fault == at + 3 * PAGE);
        volatile char *volatile back = at + 3 * PAGE - 1;
        if (sigsetjmp(out, 1) == 0)
            for (;; back--) CHECK(*back == (char)round);
        CHECK(fault == at + PAGE - 1);
    }
    return suite_end();
}
