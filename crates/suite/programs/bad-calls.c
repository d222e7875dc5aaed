/* Wrong calls get their errors: EFAULT, EBADF, ENOSYS, EINVAL. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2];
    CHECK(pipe(p) == 0);
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(none != MAP_FAILED);
    char *volatile bad = (char *)16;
    while (going_on()) {
        CHECK_ERROR(write(p[1], none, 10), EFAULT);
        CHECK_ERROR(write(p[1], bad, 10), EFAULT);
        CHECK(write(p[1], "x", 1) == 1);
        CHECK_ERROR(read(p[0], none, 1), EFAULT);
        char c;
        CHECK(read(p[0], &c, 1) == 1 && c == 'x');
        CHECK_ERROR(open(none, O_RDONLY), EFAULT);
        CHECK_ERROR(open(bad, O_RDONLY), EFAULT);
        CHECK_ERROR(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, none), EFAULT);
        CHECK_ERROR(syscall(9999, 1, 2, 3), ENOSYS);
        CHECK_ERROR(close(9999), EBADF);
        CHECK_ERROR(lseek(p[0], 0, SEEK_SET), ESPIPE);
        CHECK_ERROR(read(p[1], &c, 1), EBADF);
        CHECK_ERROR(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
        CHECK_ERROR(munmap((void *)1, 4096), EINVAL);
        CHECK_ERROR(writev(p[1], (void *)bad, 3), EFAULT);
        CHECK_ERROR(execve("/nonexistent", argv, NULL), ENOENT);
    }
    return suite_end();
}
