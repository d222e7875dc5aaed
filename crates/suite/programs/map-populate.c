/* MAP_POPULATE of a file and of nothing. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 64 * 4096 };
    static unsigned char data[SIZE];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    fill(data, SIZE, 6);
    CHECK(fd >= 0 && write(fd, data, SIZE) == SIZE);
    for (unsigned round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
        unsigned char *none = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CHECK(at != MAP_FAILED && none != MAP_FAILED && filled(at, SIZE, 6));
        for (int i = 0; i < SIZE; i += 129) CHECK(none[i] == 0);
        fill(none, SIZE, round);
        CHECK(filled(none, SIZE, round) && munmap(at, SIZE) == 0 && munmap(none, SIZE) == 0);
    }
    return suite_end();
}
