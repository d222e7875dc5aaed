/* A program that gives up root for good at its start and goes on as an ordinary user. */
#include "suite.h"
#include <grp.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    if (getuid() == 0) CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    char data[3000], in[3000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(pwrite(fd, data, sizeof data, 0) == sizeof data && pread(fd, in, sizeof in, 0) == sizeof in);
        CHECK(filled(in, sizeof in, round) && getuid() != 0);
        CHECK_ERROR(setuid(0), EPERM);
    }
    return suite_end();
}
