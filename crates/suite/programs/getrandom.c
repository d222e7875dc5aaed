/* getrandom and /dev/urandom give fresh bytes; /dev/zero, /dev/full and /dev/null do their jobs. */
#include "suite.h"
#include <sys/random.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    unsigned char a[64], b[64] = {0}, page[5000];
    int random = open("/dev/urandom", O_RDONLY), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_WRONLY), null = open("/dev/null", O_RDWR);
    CHECK(random >= 0 && zero >= 0 && full >= 0 && null >= 0);
    while (going_on()) {
        CHECK(getrandom(a, sizeof a, 0) == sizeof a && memcmp(a, b, sizeof a) != 0);
        CHECK(read(random, b, sizeof b) == sizeof b && memcmp(a, b, sizeof a) != 0);
        memcpy(b, a, sizeof a);
        memset(page, 7, sizeof page);
        CHECK(read(zero, page, sizeof page) == sizeof page);
        for (size_t i = 0; i < sizeof page; i++) CHECK(page[i] == 0);
        CHECK(write(null, page, sizeof page) == sizeof page && read(null, page, 10) == 0);
        CHECK_ERROR(write(full, page, 10), ENOSPC);
    }
    return suite_end();
}
