/* A program that denies itself memory to write and to execute (PR_SET_MDWE). */
// suite: may stay: the engine needs a page that can be executed
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { KIND = MAP_PRIVATE | MAP_ANONYMOUS };
    int denied = prctl(65, 1, 0, 0, 0) == 0;
    for (int round = 0; going_on(); round++) {
        char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, KIND, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, 8192, round);
        if (denied) {
            CHECK_ERROR(mprotect(at, 8192, PROT_READ | PROT_EXEC), EACCES);
            CHECK_ERROR(mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, KIND, -1, 0), EACCES);
        }
        CHECK(filled(at, 8192, round) && mprotect(at, 4096, PROT_READ) == 0 && munmap(at, 8192) == 0);
    }
    return suite_end();
}
