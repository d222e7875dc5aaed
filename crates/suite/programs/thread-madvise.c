/* MADV_DONTNEED by one thread makes its pages zero while the others write the pages between them. */
// suite: flags -pthread
#include "threads.h"
enum { PAGES = 32 };
static unsigned char *at;
static void *write_odd(void *number) {
    unsigned round = 0;
    for (; !stopped(); round++)
        for (long i = 1 + 2 * (long)number; i < PAGES; i += 4) {
            CHECK(round == 0 || filled(at + i * 4096, 4096, round - 1 + i));
            fill(at + i * 4096, 4096, round + i);
        }
    for (long i = 1 + 2 * (long)number; i < PAGES; i += 4) CHECK(filled(at + i * 4096, 4096, round - 1 + i));
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    at = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    static const unsigned char zero[4096];
    pthread_t threads[2] = {start(write_odd, 0), start(write_odd, 1)};
    for (unsigned round = 0; going_on(); round++) {
        for (int i = 0; i < PAGES; i += 2) fill(at + i * 4096, 4096, round * 7 + i);
        for (int i = 0; i < PAGES; i += 2) {
            CHECK(filled(at + i * 4096, 4096, round * 7 + i));
            CHECK(madvise(at + i * 4096, 4096, MADV_DONTNEED) == 0);
            CHECK(memcmp(at + i * 4096, zero, 4096) == 0);
        }
        CHECK(madvise(at, 4096, round % 2 ? MADV_NORMAL : MADV_WILLNEED) == 0);
    }
    stop_all();
    join(threads[0]);
    join(threads[1]);
    return suite_end();
}
