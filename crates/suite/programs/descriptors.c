/* Hundreds of descriptors: dup, dup2, dup3, F_DUPFD, close_range; the lowest free number is used. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    close_range(3, ~0u, 0);
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(file >= 0);
    while (going_on()) {
        int first = dup(file);
        CHECK(first == file + 1);
        for (int i = 2; i < 200; i++) CHECK(dup(file) == file + i);
        CHECK(close(file + 50) == 0 && dup(file) == file + 50);
        CHECK(dup2(file, 700) == 700 && dup2(file, file) == file);
        CHECK(dup3(file, 701, O_CLOEXEC) == 701 && fcntl(701, F_GETFD) == FD_CLOEXEC);
        CHECK_ERROR(dup3(file, file, 0), EINVAL);
        CHECK(fcntl(file, F_DUPFD, 600) == 600);
        CHECK(lseek(700, 123, SEEK_SET) == 123 && lseek(file, 0, SEEK_CUR) == 123);
        CHECK(close_range(file + 1, 800, 0) == 0);
        CHECK_ERROR(fcntl(first, F_GETFD), EBADF);
        CHECK_ERROR(read(700, &first, 1), EBADF);
    }
    return suite_end();
}
