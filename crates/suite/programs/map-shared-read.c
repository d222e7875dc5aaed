/* A shared read-only mapping of a file that nobody writes, as for locale archives. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { SIZE = 50 * 4096 };
    static unsigned char data[SIZE];
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    fill(data, SIZE, 4);
    CHECK(fd >= 0 && write(fd, data, SIZE) == SIZE && close(fd) == 0);
    fd = open("file", O_RDONLY);
    unsigned char *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(fd >= 0 && at != MAP_FAILED && close(fd) == 0);
    while (going_on()) CHECK(filled(at, SIZE, 4));
    CHECK_ERROR(mprotect(at, 4096, PROT_READ | PROT_WRITE), EACCES);
    return suite_end();
}
