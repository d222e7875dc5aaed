/* readv and writev with many parts of odd sizes, some of them empty. */
#include "suite.h"
enum { PARTS = 37 };
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    static char out[40000], in[40000];
    for (unsigned round = 0; going_on(); round++) {
        struct iovec write_parts[PARTS], read_parts[PARTS];
        size_t total = 0;
        for (int i = 0; i < PARTS; i++) {
            size_t n = (i * 211 + round) % 1000;
            write_parts[i] = (struct iovec){out + total, n};
            total += n;
        }
        fill(out, total, round);
        size_t rest = total;
        for (int i = 0; i < PARTS; i++) {
            size_t n = i == PARTS - 1 ? rest : (i * 97 + round) % 500;
            if (n > rest) n = rest;
            read_parts[i] = (struct iovec){in + total - rest, n};
            rest -= n;
        }
        CHECK(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, write_parts, PARTS) == (ssize_t)total);
        CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, read_parts, PARTS) == (ssize_t)total);
        CHECK(filled(in, total, round));
    }
    return suite_end();
}
