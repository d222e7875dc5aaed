/* A file cut short under a private mapping, by ftruncate, truncate and O_TRUNC: what lay beyond the end is gone, the program's own pages too. */
#include "suite.h"
static sigjmp_buf back;
static unsigned char *volatile touched;
static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    CHECK(number == SIGBUS && info->si_code == BUS_ADRERR && info->si_addr == touched);
    siglongjmp(back, 1);
}
static int is_there(unsigned char *at) {
    touched = at;
    if (sigsetjmp(back, 1)) return 0;
    (void)*(volatile unsigned char *)at;
    return 1;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    enum { PAGE = 4096, PAGES = 16, SIZE = PAGE * PAGES, LEFT = 4 * PAGE + 100 };
    static unsigned char data[SIZE];
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    for (unsigned round = 0; going_on(); round++) {
        int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
        fill(data, SIZE, round);
        CHECK(fd >= 0 && write(fd, data, SIZE) == SIZE);
        unsigned char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        CHECK(at != MAP_FAILED && memcmp(at, data, SIZE) == 0);
        for (int page = 1; page < PAGES; page += 2) at[page * PAGE] ^= 1;
        long end = round % 3 == 2 ? 0 : LEFT;
        switch (round % 3) {
        case 0: CHECK(ftruncate(fd, end) == 0); break;
        case 1: CHECK(truncate("file", end) == 0); break;
        default: CHECK(close(open("file", O_WRONLY | O_TRUNC)) == 0);
        }
        long there = (end + PAGE - 1) / PAGE;
        for (int page = 0; page < PAGES; page++) {
            CHECK(is_there(at + page * PAGE) == (page < there));
            if (page < there) CHECK(at[page * PAGE] == (data[page * PAGE] ^ (page & 1)));
        }
        if (end) CHECK(at[end - 1] == data[end - 1] && at[end] == 0 && at[end + 1000] == 0);
        /* It grows again: zeros, whatever stood there. */
        CHECK(ftruncate(fd, SIZE) == 0);
        for (int page = there; page < PAGES; page++) CHECK(is_there(at + page * PAGE) && at[page * PAGE] == 0);
        CHECK(munmap(at, SIZE) == 0 && close(fd) == 0);
    }
    return suite_end();
}
