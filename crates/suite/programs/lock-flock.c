/* flock and open-file-description locks: shared, exclusive, converted, waited for. */
#include "suite.h"
#include <sys/file.h>
static void body(void) {
    int fd = open("file", O_RDWR);
    CHECK(fd >= 0);
    for (;;) {
        CHECK(flock(fd, LOCK_EX) == 0);
        int n = 0;
        CHECK(pread(fd, &n, sizeof n, 0) == sizeof n);
        n++;
        CHECK(pwrite(fd, &n, sizeof n, 0) == sizeof n && flock(fd, LOCK_UN) == 0);
        sleep_ms(2);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("file", O_RDWR), n = 0;
    int ofd = open("ofd", O_RDWR | O_CREAT, 0600), ofd2 = open("ofd", O_RDWR);
    CHECK(fd >= 0 && other >= 0 && ofd >= 0 && ofd2 >= 0 && pwrite(fd, &n, sizeof n, 0) == sizeof n);
    pid_t pid = partner(body);
    while (going_on()) {
        CHECK(flock(fd, LOCK_EX) == 0);
        CHECK_ERROR(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
        int before, now;
        CHECK(pread(fd, &before, sizeof before, 0) == sizeof before);
        sleep_ms(3);
        CHECK(pread(fd, &now, sizeof now, 0) == sizeof now && now == before);
        CHECK(flock(fd, LOCK_UN) == 0);
        CHECK(flock(fd, LOCK_SH) == 0 && flock(other, LOCK_SH) == 0 && flock(other, LOCK_UN) == 0 && flock(fd, LOCK_UN) == 0);
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        CHECK(fcntl(ofd, F_OFD_SETLK, &whole) == 0);
        CHECK_ERROR(fcntl(ofd2, F_OFD_SETLK, &whole), EAGAIN);
        whole.l_type = F_UNLCK;
        CHECK(fcntl(ofd, F_OFD_SETLK, &whole) == 0);
    }
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
