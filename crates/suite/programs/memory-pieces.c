/* More areas than a process may have: the calls that would make one more are ENOMEM, and what is there stays. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { PAGES = 150000 };
    for (int round = 0; going_on(); round++) {
        char *at = mmap(NULL, PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        at[0] = 7;
        // A move now finds one area.
        sleep_ms(150);
        long made = 0;
        errno = 0;
        while (made < PAGES / 2 && mprotect(at + 8192 * made + 4096, 4096, PROT_READ) == 0) made++;
        CHECK(errno == ENOMEM && made > 20000 && made < 33000);
        CHECK(at[0] == 7 && (at[8192 * made + 4096] = 5));
        // What was refused is as it was, for home's kernel, too.
        int fd = open("/dev/zero", O_RDONLY);
        CHECK(fd >= 0 && read(fd, at + 8192 * made + 4096, 10) == 10);
        CHECK_ERROR(read(fd, at + 8192 * (made - 2) + 4096, 10), EFAULT);
        CHECK(close(fd) == 0 && munmap(at, PAGES * 4096ul) == 0);
    }
    return suite_end();
}
