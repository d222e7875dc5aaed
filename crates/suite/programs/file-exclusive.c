/* O_CREAT|O_EXCL makes a file once; O_NOFOLLOW and ENOENT say why not. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(symlink("nowhere", "link") == 0);
    while (going_on()) {
        int fd = open("file", O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0);
        CHECK_ERROR(open("file", O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
        CHECK_ERROR(open("link", O_RDONLY | O_NOFOLLOW), ELOOP);
        CHECK_ERROR(open("link", O_RDONLY), ENOENT);
        CHECK(close(fd) == 0 && unlink("file") == 0);
        CHECK_ERROR(open("file", O_RDONLY), ENOENT);
    }
    return suite_end();
}
