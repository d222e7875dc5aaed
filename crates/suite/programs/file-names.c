/* rename, link, symlink, readlink, unlink, renameat2: names come and go as told. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char target[64];
    struct stat a, b;
    while (going_on()) {
        int fd = open("a", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        CHECK(fd >= 0 && write(fd, "A", 1) == 1 && close(fd) == 0);
        CHECK(link("a", "b") == 0 && stat("a", &a) == 0 && stat("b", &b) == 0);
        CHECK(a.st_ino == b.st_ino && a.st_nlink == 2);
        CHECK(symlink("b", "s") == 0 && readlink("s", target, sizeof target) == 1 && target[0] == 'b');
        CHECK(lstat("s", &b) == 0 && S_ISLNK(b.st_mode));
        CHECK_ERROR(rename("none", "c"), ENOENT);
        CHECK(rename("a", "c") == 0 && access("c", R_OK) == 0);
        CHECK_ERROR(access("a", F_OK), ENOENT);
        CHECK(close(open("d", O_WRONLY | O_CREAT, 0600)) == 0);
        CHECK(renameat2(AT_FDCWD, "c", AT_FDCWD, "d", RENAME_EXCHANGE) == 0);
        CHECK(stat("d", &a) == 0 && a.st_size == 1 && stat("c", &a) == 0 && a.st_size == 0);
        CHECK_ERROR(renameat2(AT_FDCWD, "c", AT_FDCWD, "d", RENAME_NOREPLACE), EEXIST);
        CHECK(unlink("b") == 0 && unlink("c") == 0 && unlink("d") == 0 && unlink("s") == 0);
    }
    return suite_end();
}
