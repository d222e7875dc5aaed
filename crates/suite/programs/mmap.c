/* mmap and munmap of anonymous memory in many shapes: new pages are zero, holes fault, neighbours live. */
#include "suite.h"
static sigjmp_buf out;
static void handler(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGSEGV, handler, 0);
    enum { PAGES = 64 };
    for (unsigned round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        for (int i = 0; i < PAGES * 4096; i += 512) CHECK(at[i] == 0);
        fill(at, PAGES * 4096, round);
        int hole = 1 + round % (PAGES - 2);
        CHECK(munmap(at + hole * 4096, 4096) == 0);
        volatile int reached = 0;
        if (sigsetjmp(out, 1) == 0) {
            reached = at[hole * 4096] + 1;
            CHECK(!"the hole can be read");
        }
        CHECK(reached == 0 && filled(at, hole * 4096, round));
        unsigned char *again = mmap(at + hole * 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(again == at + hole * 4096 && again[0] == 0 && again[4095] == 0);
        fill(at, PAGES * 4096, round + 1);
        CHECK(filled(at, PAGES * 4096, round + 1) && munmap(at, PAGES * 4096) == 0);
    }
    return suite_end();
}
