/* Four threads write and read by system calls in the same page, their buffers side by side: no byte is lost or another's. */
// suite: flags -pthread
#include "threads.h"
enum { COUNT = 4, PART = 4096 / COUNT / 2 };
static unsigned char page[4096] __attribute__((aligned(4096)));
static void *work(void *number) {
    long me = (long)number;
    /* Out of `from` into `to`, both in the page, between those of the others and not aligned. */
    unsigned char *from = page + me * PART * 2 + 3, *to = from + PART;
    int p[2], n = PART - 7;
    CHECK(pipe(p) == 0);
    for (unsigned round = me; !stopped(); round++) {
        fill(from, n, round);
        memset(to, 0, n);
        if (round % 2) {
            CHECK(write(p[1], from, n) == n && read(p[0], to, n) == n);
        } else {
            struct iovec out[2] = {{from, 11}, {from + 11, n - 11}}, in[2] = {{to, n - 200}, {to + n - 200, 200}};
            CHECK(writev(p[1], out, 2) == n && readv(p[0], in, 2) == n);
        }
        CHECK(filled(from, n, round) && filled(to, n, round));
        /* The bytes between the parts are never touched by anybody. */
        CHECK(from[-1] == 0xee && from[n] == 0xee && to[n] == 0xee);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    memset(page, 0xee, sizeof page);
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) threads[i] = start(work, i);
    while (going_on()) {
        CHECK(page[0] == 0xee && page[4095] == 0xee);
        sleep_ms(1);
    }
    stop_all();
    for (int i = 0; i < COUNT; i++) join(threads[i]);
    return suite_end();
}
