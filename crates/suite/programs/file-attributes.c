/* Extended attributes (where the file system has them), chmod, utimensat, statx. */
#include "suite.h"
#include <sys/xattr.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    char value[100], names[100];
    for (unsigned round = 0; going_on(); round++) {
        fill(value, sizeof value, round);
        if (fsetxattr(fd, "user.pando", value, sizeof value, 0) == 0) {
            memset(value, 0, sizeof value);
            CHECK(getxattr("file", "user.pando", value, sizeof value) == sizeof value);
            CHECK(filled(value, sizeof value, round));
            CHECK(flistxattr(fd, names, sizeof names) >= 11 && fremovexattr(fd, "user.pando") == 0);
            CHECK_ERROR(fgetxattr(fd, "user.pando", value, sizeof value), ENODATA);
        } else {
            CHECK(errno == EOPNOTSUPP);
        }
        struct timespec times[2] = {{1000 + round, 5}, {2000 + round, 7}};
        struct stat st;
        struct statx stx;
        CHECK(utimensat(AT_FDCWD, "file", times, 0) == 0 && fchmod(fd, 0600 + round % 8) == 0);
        CHECK(fstat(fd, &st) == 0 && st.st_mtim.tv_sec == 2000 + round && st.st_atim.tv_sec == 1000 + round);
        CHECK((st.st_mode & 07777) == 0600 + round % 8);
        CHECK(statx(AT_FDCWD, "file", 0, STATX_BASIC_STATS, &stx) == 0 && stx.stx_ino == st.st_ino);
    }
    return suite_end();
}
