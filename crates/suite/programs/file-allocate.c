/* fallocate: room, kept size, a punched hole. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static char data[32768], in[32768];
    for (unsigned round = 0; going_on(); round++) {
        int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
        struct stat st;
        CHECK(fd >= 0);
        if (fallocate(fd, 0, 0, 65536) < 0) {
            CHECK(errno == EOPNOTSUPP && close(fd) == 0);
            continue;
        }
        CHECK(fstat(fd, &st) == 0 && st.st_size == 65536);
        CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 65536, 65536) == 0);
        CHECK(fstat(fd, &st) == 0 && st.st_size == 65536);
        fill(data, sizeof data, round);
        CHECK(pwrite(fd, data, sizeof data, 0) == sizeof data);
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192) == 0) memset(data + 4096, 0, 8192);
        CHECK(pread(fd, in, sizeof in, 0) == sizeof in && memcmp(in, data, sizeof in) == 0);
        CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && fsync(fd) == 0 && close(fd) == 0);
        sleep_ms(1);
    }
    return suite_end();
}
