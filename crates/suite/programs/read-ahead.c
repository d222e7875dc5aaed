/* A file is read from its beginning to its end in pieces of many sizes, and here and there: read, readv, pread, preadv, lseek. */
#include "suite.h"
#define SIZE 700001
static unsigned char in[300000];
static void check(off_t at, size_t n) {
    for (size_t i = 0; i < n; i++) CHECK(in[i] == pattern_at(at + i, 7));
}
static void from_end_to_end(int fd, unsigned round) {
    off_t at = 0;
    for (unsigned i = round; at < SIZE; i++) {
        size_t n = 1 + i * 7919 % (i % 5 ? 9000 : sizeof in);
        ssize_t expect = at + (off_t)n < SIZE ? (ssize_t)n : SIZE - at;
        if (i % 3 == 0) {
            struct iovec parts[3] = {{in, n / 2}, {in + n / 2, 0}, {in + n / 2, n - n / 2}};
            CHECK(readv(fd, parts, 3) == expect);
        } else {
            CHECK(read(fd, in, n) == expect);
        }
        check(at, expect);
        at += expect;
        if (i % 4 == 0) CHECK(lseek(fd, 0, SEEK_CUR) == at);
    }
    CHECK(read(fd, in, sizeof in) == 0 && lseek(fd, 0, SEEK_CUR) == SIZE);
}
static void here_and_there(int fd, unsigned round) {
    for (unsigned i = 0; i < 40; i++) {
        off_t at = (i * 40503 + round * 977) % (SIZE + 500);
        ssize_t expect = at + 4096 <= SIZE ? 4096 : at < SIZE ? SIZE - at : 0;
        struct iovec parts[2] = {{in, 96}, {in + 96, 4000}};
        CHECK((i % 3 ? pread(fd, in, 4096, at) : preadv(fd, parts, 2, at)) == expect);
        check(at, expect);
        if (i % 5 == 0) {
            CHECK(lseek(fd, at, SEEK_SET) == at && read(fd, in, 4096) == expect);
            check(at, expect);
            CHECK(lseek(fd, -expect, SEEK_CUR) == at);
        }
    }
    CHECK(lseek(fd, -100, SEEK_END) == SIZE - 100 && read(fd, in, 500) == 100 && read(fd, in, 500) == 0);
    check(SIZE - 100, 100);
    CHECK_ERROR(lseek(fd, -1, SEEK_SET), EINVAL);
    CHECK_ERROR(lseek(fd, 5, 77), EINVAL);
    CHECK_ERROR(pread(fd, in, 10, -1), EINVAL);
    CHECK(lseek(fd, SIZE + 10, SEEK_SET) == SIZE + 10 && read(fd, in, 10) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(lseek(fd, 1000, SEEK_DATA) == 1000 && read(fd, in, 10) == 10);
    check(1000, 10);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *data = malloc(SIZE);
    fill(data, SIZE, 7);
    int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write_all(fd, data, SIZE);
    CHECK(close(fd) == 0);
    int before = open("file", O_RDONLY);
    for (unsigned round = 0; going_on(); round++) {
        int fd = open("file", O_RDONLY);
        CHECK(fd >= 0);
        from_end_to_end(fd, round);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        here_and_there(fd, round);
        from_end_to_end(fd, round * 3);
        CHECK(close(fd) == 0);
        here_and_there(before, round);
        CHECK(lseek(before, 0, SEEK_SET) == 0);
    }
    return suite_end();
}
