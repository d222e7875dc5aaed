/* RLIMIT_AS and RLIMIT_DATA: what is over the limit is ENOMEM, what is under it works. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct rlimit old, limit;
    CHECK(getrlimit(RLIMIT_AS, &old) == 0);
    for (int round = 0; going_on(); round++) {
        limit = (struct rlimit){256ul << 20, old.rlim_max};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        CHECK_ERROR(mmap(NULL, 512ul << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
        char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, 100000, round);
        CHECK(filled(at, 100000, round) && munmap(at, 1 << 20) == 0 && !malloc(400ul << 20));
        CHECK(setrlimit(RLIMIT_AS, &old) == 0);
        at = mmap(NULL, 512ul << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(at != MAP_FAILED && munmap(at, 512ul << 20) == 0);
    }
    return suite_end();
}
