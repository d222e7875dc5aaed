/* The break: what is below its begin, and where it would meet another mapping, leaves it where it is. */
#include "suite.h"
static uintptr_t at(uintptr_t wanted) { return syscall(SYS_brk, wanted); }
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    // Field 47 of stat: where the break began.
    char text[2048], *field = text;
    int fd = open("/proc/self/stat", O_RDONLY);
    ssize_t got = read(fd, text, sizeof text - 1);
    CHECK(got > 0 && close(fd) == 0);
    text[got] = 0;
    field = strrchr(text, ')');
    for (int i = 2; i < 47; i++) CHECK(field = strchr(field + 1, ' '));
    uintptr_t low = strtoul(field, NULL, 10);
    CHECK(at(low) == low);
    for (int round = 0; going_on(); round++) {
        CHECK(at(low + 40960) == low + 40960);
        fill((void *)low, 40960, round);
        CHECK(at(low - 1) == low + 40960 && at(low - 4096) == low + 40960 && at(1) == low + 40960);
        CHECK(filled((void *)low, 40960, round));
        CHECK(madvise((void *)low, 8192, MADV_DONTNEED) == 0 && at(low - 100) == low + 40960);
        // A neighbour above.
        uintptr_t up = (low + 40960 + 4095) / 4096 * 4096 + 65536;
        CHECK(mmap((void *)up, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)up);
        CHECK(at(up + 1) == low + 40960 && at(up) == low + 40960);
        CHECK(at(up - 4096) == up - 4096 && *(char *)(up - 4097) == 0);
        CHECK(munmap((void *)up, 4096) == 0 && at(up + 100) == up + 100 && at(0) == up + 100);
        // A hole in it, and something else in the hole.
        CHECK(munmap((void *)(up - 16384), 4096) == 0 && at(up - 32768) == up - 32768 && at(up) == up);
        CHECK(*(char *)(up - 16384) == 0 && at(low) == low);
    }
    return suite_end();
}
