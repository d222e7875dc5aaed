/* One thread reads into every other eight bytes of a page by readv, slowly; another counts in those between: both stay. */
// suite: flags -pthread
#include "threads.h"
static struct {
    uint32_t read_here, count_here;
} pairs[512] __attribute__((aligned(4096)));
static int p[2];
static unsigned rounds;
static void *count(void *unused) {
    (void)unused;
    uint32_t value = 0;
    for (; !stopped(); value++)
        for (int i = 0; i < 512; i++) {
            CHECK(pairs[i].count_here == value);
            pairs[i].count_here = value + 1;
        }
    return (void *)(long)value;
}
static void *read_into(void *unused) {
    (void)unused;
    for (unsigned round = 0;; round++) {
        struct iovec parts[512];
        for (int i = 0; i < 512; i++) parts[i] = (struct iovec){&pairs[i].read_here, 4};
        for (int done = 0; done < 512;) {
            ssize_t got = readv(p[0], parts + done, 512 - done);
            if (got == 0) return (void *)(long)round;
            CHECK(got > 0 && got % 4 == 0);
            done += got / 4;
        }
        for (uint32_t i = 0; i < 512; i++) CHECK(pairs[i].read_here == (round << 9) + i);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_SEQ_CST);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(p) == 0);
    pthread_t reader = start(read_into, 0), counter = start(count, 0);
    unsigned round = 0;
    for (; going_on(); round++) {
        uint32_t data[512];
        for (uint32_t i = 0; i < 512; i++) data[i] = (round << 9) + i;
        write_all(p[1], data, 128 * 4);
        if (round % 3 == 0) sleep_ms(2);
        write_all(p[1], data + 128, 384 * 4);
    }
    CHECK(close(p[1]) == 0 && join(reader) == round && rounds == round);
    stop_all();
    uint32_t value = join(counter);
    for (int i = 0; i < 512; i++) CHECK(pairs[i].count_here == value);
    return suite_end();
}
