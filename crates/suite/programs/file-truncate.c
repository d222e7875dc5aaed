/* O_TRUNC, ftruncate and truncate, down and up (zeros beyond the old end). */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char data[5000], zero[5000] = {0}, in[5000];
    for (unsigned round = 0; going_on(); round++) {
        int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
        struct stat st;
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0);
        fill(data, sizeof data, round);
        CHECK(write(fd, data, sizeof data) == sizeof data);
        CHECK(ftruncate(fd, 1234) == 0 && fstat(fd, &st) == 0 && st.st_size == 1234);
        CHECK(truncate("file", 4321) == 0);
        CHECK(pread(fd, in, sizeof in, 0) == 4321);
        CHECK(memcmp(in, data, 1234) == 0 && memcmp(in + 1234, zero, 4321 - 1234) == 0);
        CHECK(close(fd) == 0);
    }
    return suite_end();
}
