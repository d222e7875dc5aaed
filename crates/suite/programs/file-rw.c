/* A regular file: what is written at an offset is read there again. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    static char out[9000], in[9000];
    for (unsigned round = 0; going_on(); round++) {
        size_t n = 1 + round * 131 % sizeof out;
        fill(out, n, round);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(write(fd, out, n) == (ssize_t)n);
        CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)n);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(read(fd, in, n) == (ssize_t)n);
        CHECK(filled(in, n, round));
        CHECK(ftruncate(fd, n) == 0 && read(fd, in, 1) == 0);
    }
    return suite_end();
}
