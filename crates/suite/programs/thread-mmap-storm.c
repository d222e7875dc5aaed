/* mmap and munmap in four threads at once: no two get the same place, new memory is zero, the written stays. */
// suite: flags -pthread
#include "threads.h"
static void *work(void *number) {
    unsigned char *maps[6] = {0};
    size_t sizes[6] = {0};
    unsigned seeds[6] = {0};
    for (unsigned round = (long)number; !stopped(); round += 4) {
        int i = round / 4 * 5 % 6;
        if (maps[i]) {
            CHECK(filled(maps[i], sizes[i], seeds[i]));
            if (sizes[i] > 8192 && round % 3 == 0) {
                CHECK(munmap(maps[i] + 4096, 4096) == 0 && filled(maps[i], 4096, seeds[i]));
                CHECK(munmap(maps[i], 4096) == 0 && munmap(maps[i] + 8192, sizes[i] - 8192) == 0);
            } else {
                CHECK(munmap(maps[i], sizes[i]) == 0);
            }
        }
        sizes[i] = (1 + round * 7 % 9) * 4096;
        seeds[i] = round;
        maps[i] = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(maps[i] != MAP_FAILED);
        for (size_t k = 0; k < sizes[i]; k += 512) CHECK(maps[i][k] == 0);
        fill(maps[i], sizes[i], round);
    }
    for (int i = 0; i < 6; i++)
        if (maps[i]) CHECK(filled(maps[i], sizes[i], seeds[i]) && munmap(maps[i], sizes[i]) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(work, i);
    while (going_on()) sleep_ms(2);
    stop_all();
    for (int i = 0; i < 4; i++) join(threads[i]);
    return suite_end();
}
