/* A shared writable mapping of a file. Such a process may have to stay at home. */
// suite: may stay: a writable shared mapping
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 10 * 4096 };
    static unsigned char in[SIZE];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
    unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    for (unsigned round = 0; going_on(); round++) {
        fill(at, SIZE, round);
        CHECK(pread(fd, in, SIZE, 0) == SIZE && filled(in, SIZE, round));
        fill(in, SIZE, round + 9);
        CHECK(pwrite(fd, in, SIZE, 0) == SIZE && filled(at, SIZE, round + 9) && msync(at, SIZE, MS_ASYNC) == 0);
    }
    return suite_end();
}
