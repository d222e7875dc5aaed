/* A private file mapping that is kept for long, partly written, and verified again and again. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 200 * 4096 };
    static unsigned char data[SIZE];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    fill(data, SIZE, 1);
    CHECK(fd >= 0 && write(fd, data, SIZE - 1000) == SIZE - 1000);
    unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    unsigned char *read_only = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED && read_only != MAP_FAILED && close(fd) == 0 && unlink("file") == 0);
    memset(data + SIZE - 1000, 0, 1000);
    static unsigned char mine[SIZE];
    memcpy(mine, data, SIZE);
    for (unsigned round = 0; going_on(); round++) {
        unsigned where = round * 7919 % SIZE;
        at[where] ^= round + 1;
        mine[where] ^= round + 1;
        if (round % 64 == 0) CHECK(memcmp(at, mine, SIZE) == 0 && memcmp(read_only, data, SIZE) == 0);
    }
    CHECK(memcmp(at, mine, SIZE) == 0 && memcmp(read_only, data, SIZE) == 0);
    return suite_end();
}
