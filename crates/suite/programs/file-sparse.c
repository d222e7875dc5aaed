/* Holes: SEEK_DATA and SEEK_HOLE around a megabyte of nothing. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char page[4096], in[4096];
    fill(page, sizeof page, 1);
    while (going_on()) {
        int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
        CHECK(fd >= 0);
        CHECK(lseek(fd, 1 << 20, SEEK_SET) == 1 << 20);
        CHECK(write(fd, page, sizeof page) == sizeof page);
        off_t data = lseek(fd, 0, SEEK_DATA);
        CHECK(data == 1 << 20 || data == 0);
        off_t hole = lseek(fd, 1 << 20, SEEK_HOLE);
        CHECK(hole == (1 << 20) + 4096);
        CHECK_ERROR(lseek(fd, 2 << 20, SEEK_DATA), ENXIO);
        CHECK(pread(fd, in, sizeof in, 4096) == sizeof in);
        for (size_t i = 0; i < sizeof in; i++) CHECK(in[i] == 0);
        CHECK(pread(fd, in, sizeof in, 1 << 20) == sizeof in && filled(in, sizeof in, 1));
        CHECK(close(fd) == 0);
    }
    return suite_end();
}
