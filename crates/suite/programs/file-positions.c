/* pread, pwrite, preadv, pwritev: the descriptor's own offset does not move. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 65536) == 0 && lseek(fd, 77, SEEK_SET) == 77);
    char out[3000], in[3000];
    for (unsigned round = 0; going_on(); round++) {
        off_t at = round * 577 % 60000;
        fill(out, sizeof out, round);
        CHECK(pwrite(fd, out, sizeof out, at) == sizeof out);
        CHECK(pread(fd, in, sizeof in, at) == sizeof in && filled(in, sizeof in, round));
        struct iovec parts[2] = {{in + 1000, 2000}, {in, 1000}};
        CHECK(pwritev(fd, parts, 2, at) == 3000);
        memset(in, 0, sizeof in);
        CHECK(preadv(fd, parts, 2, at) == 3000 && filled(in, sizeof in, round));
        CHECK(preadv2(fd, parts, 2, at, 0) == 3000);
        CHECK(lseek(fd, 0, SEEK_CUR) == 77);
    }
    return suite_end();
}
