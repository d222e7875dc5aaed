/* chdir, fchdir, getcwd and names relative to a directory descriptor. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char top[PATH_MAX], now[PATH_MAX], want[PATH_MAX + 16];
    CHECK(getcwd(top, sizeof top) && mkdir("one", 0755) == 0 && mkdir("one/two", 0755) == 0);
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
    sprintf(want, "%s/one/two", top);
    while (going_on()) {
        CHECK(chdir("one/two") == 0 && getcwd(now, sizeof now) && strcmp(now, want) == 0);
        CHECK(close(open("file", O_CREAT | O_WRONLY, 0600)) == 0);
        CHECK(faccessat(fd, "one/two/file", R_OK, 0) == 0);
        CHECK(unlinkat(fd, "one/two/file", 0) == 0);
        CHECK_ERROR(chdir("file"), ENOENT);
        CHECK(fchdir(fd) == 0 && getcwd(now, sizeof now) && strcmp(now, top) == 0);
    }
    return suite_end();
}
