/* umask holds and shapes the mode of new files. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    mode_t last = 022;
    umask(last);
    for (unsigned round = 0; going_on(); round++) {
        mode_t mask = round * 73 % 0100;
        struct stat st;
        CHECK(umask(mask) == last);
        int fd = open("file", O_WRONLY | O_CREAT | O_EXCL, 0666);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == (0666 & ~mask));
        CHECK(close(fd) == 0 && unlink("file") == 0);
        last = mask;
    }
    return suite_end();
}
