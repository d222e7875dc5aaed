/* A private writable mapping of a file: written pages are one's own, the others follow the file. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 40 * 4096 };
    static unsigned char data[SIZE];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    fill(data, SIZE, 1);
    CHECK(fd >= 0 && write(fd, data, SIZE) == SIZE);
    for (unsigned round = 0; going_on(); round++) {
        unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        CHECK(at != MAP_FAILED);
        for (int page = round % 2; page < 40; page += 2) memset(at + page * 4096, round, 4096);
        for (int page = 0; page < 40; page++) {
            int mine = page % 2 == (int)(round % 2);
            for (int i = 0; i < 4096; i += 127) CHECK(at[page * 4096 + i] == (mine ? (unsigned char)round : data[page * 4096 + i]));
        }
        CHECK(pread(fd, data, SIZE, 0) == SIZE && filled(data, SIZE, 1));
        CHECK(madvise(at, SIZE, MADV_DONTNEED) == 0 && filled(at, SIZE, 1) && munmap(at, SIZE) == 0);
        unsigned char *tail = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 4096 * 3);
        CHECK(tail != MAP_FAILED && memcmp(tail, data + 3 * 4096, 8192) == 0 && munmap(tail, 8192) == 0);
    }
    return suite_end();
}
