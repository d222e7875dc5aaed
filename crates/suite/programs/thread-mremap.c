/* mremap in three threads at once: growing, moving and shrinking; the others' memory is where it was. */
// suite: flags -pthread
#include "threads.h"
static void *work(void *number) {
    unsigned seed = (long)number;
    size_t pages = 2;
    unsigned char *at = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fill(at, pages * 4096, seed);
    for (unsigned round = 0; !stopped(); round++) {
        size_t next = 1 + (round * 5 + seed) % 12, kept = next < pages ? next : pages;
        unsigned char *to;
        if (round % 3 == 0) {
            unsigned char *place = mmap(NULL, next * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(place != MAP_FAILED);
            to = mremap(at, pages * 4096, next * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, place);
            CHECK(to == place);
        } else {
            to = mremap(at, pages * 4096, next * 4096, MREMAP_MAYMOVE);
            CHECK(to != MAP_FAILED);
        }
        CHECK(filled(to, kept * 4096, seed));
        for (size_t i = kept * 4096; i < next * 4096; i += 256) CHECK(to[i] == 0);
        seed += 3;
        at = to;
        pages = next;
        fill(at, pages * 4096, seed);
    }
    CHECK(filled(at, pages * 4096, seed) && munmap(at, pages * 4096) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    while (going_on()) sleep_ms(2);
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
