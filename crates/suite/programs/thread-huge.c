/* Huge pages and several threads: random words change and are checked, while another thread takes pieces of them away, protects them, moves
 * them, and while a child looks at a copy. */
#include "suite.h"
#include <pthread.h>
enum { HUGE = 2 << 20, COUNT = 8, THREADS = 3, WORDS = HUGE / 8 };
static uint64_t *map;
static volatile int stop;
static uint64_t mixed(uint64_t x) {
    x ^= x >> 31, x *= 0x9e3779b97f4a7c15ull, x ^= x >> 29;
    return x;
}
/* Each thread has a huge page of its own among the first, and writes words that follow from their place and its round. */
static void *writer(void *arg) {
    uint64_t *mine = map + (uintptr_t)arg * WORDS, round = 0, state = (uintptr_t)arg + 1;
    for (size_t i = 0; i < WORDS; i++) mine[i] = mixed(i);
    while (!stop) {
        round++;
        for (int i = 0; i < 2000; i++) {
            state = mixed(state + i);
            size_t at = state % WORDS;
            uint64_t seen = mine[at];
            CHECK(seen == mixed(at) || seen == ~mixed(at));
            mine[at] = ~seen;
        }
        if (round % 64 == 0)
            for (size_t i = 0; i < WORDS; i++) CHECK(mine[i] == mixed(i) || mine[i] == ~mixed(i));
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    unsigned char *all = mmap(NULL, (COUNT + 1) * (size_t)HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    map = (uint64_t *)(((uintptr_t)all + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    CHECK(madvise(map, (size_t)COUNT * HUGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    pthread_t threads[THREADS];
    for (uintptr_t t = 0; t < THREADS; t++) CHECK(pthread_create(&threads[t], NULL, writer, (void *)t) == 0);
    unsigned char *own = (unsigned char *)(map + THREADS * WORDS);
    size_t size = (COUNT - THREADS) * (size_t)HUGE;
    for (unsigned round = 0; going_on(); round++) {
        for (size_t i = 0; i < size; i += 64) own[i] = pattern_at(i, round);
        size_t piece = (round * 37 % 400) * 4096;
        CHECK(madvise(own + piece, 3 * 4096, MADV_DONTNEED) == 0);
        CHECK(mprotect(own + HUGE + piece, 4096, PROT_READ) == 0);
        CHECK(mremap(own + 2 * HUGE + piece, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, own + 3 * HUGE + piece) != MAP_FAILED);
        for (size_t i = 0; i < size; i += 64) {
            if (i >= 2 * HUGE + piece && i < 2 * HUGE + piece + 4096) continue;
            size_t from = i >= 3 * HUGE + piece && i < 3 * HUGE + piece + 4096 ? i - HUGE : i;
            CHECK(own[i] == (i >= piece && i < piece + 3 * 4096 ? 0 : pattern_at(from, round)));
        }
        CHECK(mprotect(own + HUGE + piece, 4096, PROT_READ | PROT_WRITE) == 0);
        CHECK(mmap(own + 2 * HUGE + piece, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
        CHECK(madvise(own, size, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    }
    stop = 1;
    for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    return suite_end();
}
