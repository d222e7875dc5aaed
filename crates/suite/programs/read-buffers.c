/* Where a read puts its bytes: fresh memory, the edge of a mapping, memory that may not be written, the deep stack, under a storm of
 * signals. The position follows what was read. */
#include "suite.h"
#define SIZE 300000
static volatile int ticks;
static void *volatile nowhere = NULL;
static void tick(int signal) { ticks += signal == SIGALRM; }
static int is(const void *bytes, off_t at, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)bytes)[i] != pattern_at(at + i, 9)) return 0;
    return 1;
}
static __attribute__((noinline)) void deep(int fd, int levels) {
    char room[9000];
    off_t at = lseek(fd, 0, SEEK_CUR);
    CHECK(read(fd, room, sizeof room) == sizeof room && is(room, at, sizeof room));
    if (levels) deep(fd, levels - 1);
    CHECK(is(room, at, sizeof room));
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *data = malloc(SIZE);
    fill(data, SIZE, 9);
    int out = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write_all(out, data, SIZE);
    CHECK(close(out) == 0);
    on(SIGALRM, tick, SA_RESTART);
    struct itimerval often = {{0, 300}, {0, 300}};
    for (unsigned round = 0; going_on(); round++) {
        int fd = open("file", O_RDONLY), anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
        char small[5000];
        for (int i = 0; i < 5; i++) CHECK(read(fd, small, sizeof small) == sizeof small && is(small, i * 5000, 5000));
        char *map = mmap(NULL, 20 * 4096, PROT_READ | PROT_WRITE, anonymous, -1, 0);
        CHECK(read(fd, map + 100, 60000) == 60000 && is(map + 100, 25000, 60000));
        /* Only the first pages can be written. */
        CHECK(mprotect(map + 4 * 4096, 4096, PROT_READ) == 0 && munmap(map + 8 * 4096, 4096) == 0);
        CHECK(lseek(fd, 1000, SEEK_SET) == 1000);
        ssize_t got = read(fd, map + 4096 * 2, 50000);
        CHECK(got == 8192 && is(map + 4096 * 2, 1000, got) && lseek(fd, 0, SEEK_CUR) == 1000 + got);
        CHECK_ERROR(read(fd, map + 4 * 4096, 100), EFAULT);
        CHECK_ERROR(pread(fd, map + 8 * 4096, 100, 5), EFAULT);
        CHECK_ERROR(read(fd, nowhere, 100), EFAULT);
        CHECK_ERROR(readv(fd, (struct iovec *)nowhere, 2), EFAULT);
        CHECK(lseek(fd, 0, SEEK_CUR) == 1000 + got && read(fd, map, 0) == 0);
        struct iovec parts[3] = {{map, 10}, {map + 8 * 4096, 10}, {map + 30, 10}};
        CHECK(readv(fd, parts, 3) == 10 && is(map, 1000 + got, 10));
        CHECK(munmap(map, 20 * 4096) == 0);
        /* Memory that a fork or nobody has touched; holes in it. */
        map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, anonymous, -1, 0);
        CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, map + 77, 1 << 19) == SIZE && is(map + 77, 0, SIZE));
        CHECK(madvise(map, 1 << 20, MADV_DONTNEED) == 0 && map[77] == 0);
        CHECK(pread(fd, map + 4096, 9999, 3) == 9999 && is(map + 4096, 3, 9999) && map[4095] == 0);
        CHECK(munmap(map, 1 << 20) == 0);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        deep(fd, round % 20);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        setitimer(ITIMER_REAL, &often, NULL);
        for (off_t at = 0; at + 5000 <= SIZE; at += 5000)
            CHECK(read(fd, small, sizeof small) == sizeof small && is(small, at, 5000));
        struct itimerval never = {0};
        setitimer(ITIMER_REAL, &never, NULL);
        CHECK(read(fd, small, 1) == 0 && close(fd) == 0);
    }
    return suite_end();
}
