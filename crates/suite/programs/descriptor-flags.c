/* F_GETFL and F_SETFL, O_NONBLOCK by fcntl and by FIONBIO, close-on-exec, FIONREAD, pipe size. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int p[2], n, one = 1, zero = 0;
    char c;
    CHECK(pipe2(p, O_CLOEXEC) == 0);
    while (going_on()) {
        CHECK(fcntl(p[0], F_GETFL) == O_RDONLY && fcntl(p[1], F_GETFL) == O_WRONLY);
        CHECK(fcntl(p[0], F_GETFD) == FD_CLOEXEC && fcntl(p[0], F_SETFD, 0) == 0 && fcntl(p[0], F_GETFD) == 0);
        CHECK(fcntl(p[0], F_SETFD, FD_CLOEXEC) == 0);
        CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(p[0], F_GETFL) == (O_RDONLY | O_NONBLOCK));
        CHECK_ERROR(read(p[0], &c, 1), EAGAIN);
        CHECK(ioctl(p[0], FIONBIO, &zero) == 0 && fcntl(p[0], F_GETFL) == O_RDONLY);
        CHECK(ioctl(p[0], FIONBIO, &one) == 0);
        CHECK(write(p[1], "hello", 5) == 5 && ioctl(p[0], FIONREAD, &n) == 0 && n == 5);
        char in[5];
        CHECK(read(p[0], in, 5) == 5 && memcmp(in, "hello", 5) == 0 && ioctl(p[0], FIONREAD, &n) == 0 && n == 0);
        CHECK(fcntl(p[0], F_SETFL, 0) == 0 && fcntl(p[1], F_SETPIPE_SZ, 131072) == 131072);
        CHECK(fcntl(p[0], F_GETPIPE_SZ) == 131072 && fcntl(p[1], F_SETPIPE_SZ, 65536) == 65536);
    }
    return suite_end();
}
