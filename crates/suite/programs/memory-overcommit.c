/* More memory than there is may be reserved; that it be writable is refused. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    size_t size = 1ul << 42;
    char mode = 0;
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
    CHECK(read(fd, &mode, 1) == 1 && close(fd) == 0);
    for (int round = 0; going_on(); round++) {
        char *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        CHECK(mprotect(at + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
        fill(at + 4096, 4096, round);
        if (mode == '0') CHECK_ERROR(mprotect(at + 8192, size - 8192, PROT_READ | PROT_WRITE), ENOMEM);
        CHECK(mprotect(at + 8192, size - 8192, PROT_READ) == 0);
        CHECK(filled(at + 4096, 4096, round) && munmap(at, size) == 0);
    }
    return suite_end();
}
