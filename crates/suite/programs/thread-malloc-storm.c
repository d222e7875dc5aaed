/* malloc, realloc and free in eight threads; what one allocates another checks and frees. */
// suite: flags -pthread
#include "threads.h"
enum { COUNT = 8, SLOTS = 64 };
struct block {
    uint32_t size, seed;
    unsigned char data[];
};
static struct block *slots[SLOTS];
static void check_and_free(struct block *block) {
    if (!block) return;
    CHECK(filled(block->data, block->size, block->seed));
    free(block);
}
static void *work(void *number) {
    uint32_t random = 7 + (long)number;
    while (!stopped()) {
        random = random * 1664525 + 1013904223;
        uint32_t size = random % 23 == 0 ? 150000 + (random >> 16) : (random >> 8) % 2000;
        struct block *block = malloc(sizeof *block + size);
        CHECK(block);
        block->size = size;
        block->seed = random;
        fill(block->data, size, random);
        if (random % 5 == 0) {
            block = realloc(block, sizeof *block + size * 2 + 1);
            CHECK(block && filled(block->data, size, random));
        }
        check_and_free(__atomic_exchange_n(&slots[(random >> 20) % SLOTS], block, __ATOMIC_SEQ_CST));
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) threads[i] = start(work, i);
    while (going_on()) sleep_ms(2);
    stop_all();
    for (int i = 0; i < COUNT; i++) join(threads[i]);
    for (int i = 0; i < SLOTS; i++) check_and_free(slots[i]);
    return suite_end();
}
