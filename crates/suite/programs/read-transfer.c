/* Calls that move a descriptor's position by themselves, between reads: sendfile, splice, copy_file_range, preadv2. And a mapping of the same
 * file, flags that change, locks. */
#include "suite.h"
#include <sys/sendfile.h>
#include <sys/file.h>
#define SIZE 300000
static char in[40000];
static off_t at;
static void next(int fd, size_t n) {
    CHECK(read(fd, in, n) == (ssize_t)n);
    for (size_t i = 0; i < n; i++) CHECK((unsigned char)in[i] == pattern_at(at + i, 5));
    at += n;
}
static void came(int fd, size_t n) {
    read_all(fd, in, n);
    for (size_t i = 0; i < n; i++) CHECK((unsigned char)in[i] == pattern_at(at + i, 5));
    at += n;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *data = malloc(SIZE);
    fill(data, SIZE, 5);
    int out = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644), pipes[2], pair[2];
    write_all(out, data, SIZE);
    CHECK(close(out) == 0 && pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    out = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    while (going_on()) {
        int fd = open("file", O_RDONLY);
        at = 0;
        for (int i = 0; i < 6; i++) next(fd, 4096);
        CHECK(sendfile(pair[0], fd, NULL, 9000) == 9000);
        came(pair[1], 9000);
        next(fd, 5000);
        next(fd, 5000);
        CHECK(splice(fd, NULL, pipes[1], NULL, 8000, 0) == 8000);
        came(pipes[0], 8000);
        next(fd, 5000);
        CHECK(copy_file_range(fd, NULL, out, NULL, 7000, 0) == 7000);
        CHECK(lseek(out, -7000, SEEK_CUR) >= 0);
        came(out, 7000);
        next(fd, 100);
        struct iovec part = {in, 3000};
        CHECK(preadv2(fd, &part, 1, -1, 0) == 3000);
        for (size_t i = 0; i < 3000; i++) CHECK((unsigned char)in[i] == pattern_at(at + i, 5));
        at += 3000;
        next(fd, 9000);
        int left;
        CHECK(ioctl(fd, FIONREAD, &left) == 0 && left == SIZE - at);
        char *map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(map != MAP_FAILED && filled(map, SIZE, 5) && munmap(map, SIZE) == 0);
        next(fd, 9000);
        CHECK(flock(fd, LOCK_SH) == 0);
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_CUR, .l_start = 0, .l_len = 10};
        CHECK(fcntl(fd, F_SETLK, &lock) == 0);
        next(fd, 9000);
        CHECK(fcntl(fd, F_SETFL, O_NOATIME | O_NONBLOCK) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
        next(fd, 9000);
        next(fd, 9000);
        CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
        next(fd, 9000);
        /* An opener that does not wait is not told that somebody is in its way. */
        int more = open("file", O_RDWR | O_NONBLOCK);
        CHECK(more >= 0 && close(more) == 0);
        next(fd, 9000);
        CHECK(close(fd) == 0 && lseek(out, 0, SEEK_SET) == 0);
    }
    return suite_end();
}
