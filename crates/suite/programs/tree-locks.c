/* Locks and fork: flock goes with the open file, fcntl with the process; whoever ends lets go of them. */
#include "suite.h"
#include <sys/file.h>
static int fd, p[2];
static struct flock range(short kind) { return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5}; }
static void body(void) {
    struct flock mine = range(F_WRLCK);
    pid_t parent = getppid();
    /* The parent's flock is ours, too; its fcntl lock is not. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) _exit(1);
    if (fcntl(fd, F_SETLK, &mine) != -1 || errno != EAGAIN) _exit(2);
    if (fcntl(fd, F_GETLK, &mine) != 0 || mine.l_type != F_WRLCK || mine.l_pid != parent) _exit(3);
    mine = range(F_WRLCK);
    write_all(p[1], "w", 1);
    int result;
    while ((result = fcntl(fd, F_SETLKW, &mine)) < 0 && errno == EINTR) {
    }
    if (result != 0 || pread(fd, &result, sizeof result, 0) != sizeof result) _exit(4);
    _exit(100 + result % 100);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    for (int round = 0; going_on(); round++) {
        CHECK((fd = open("file", O_RDWR | O_CREAT, 0600)) >= 0 && pipe(p) == 0);
        int other = open("file", O_RDWR);
        struct flock mine = range(F_WRLCK);
        CHECK(other >= 0 && flock(fd, LOCK_EX) == 0 && fcntl(fd, F_SETLK, &mine) == 0);
        pid_t pid = partner(body);
        char byte;
        read_all(p[0], &byte, 1);
        CHECK(pwrite(fd, &round, sizeof round, 0) == sizeof round);
        CHECK_ERROR(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
        mine = range(F_UNLCK);
        CHECK(fcntl(fd, F_SETLK, &mine) == 0 && WEXITSTATUS(wait_for(pid)) == 100 + round % 100);
        mine = range(F_WRLCK);
        CHECK(fcntl(fd, F_GETLK, &mine) == 0 && mine.l_type == F_UNLCK);
        CHECK(flock(fd, LOCK_UN) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
        CHECK(close(fd) == 0 && close(other) == 0 && close(p[0]) == 0 && close(p[1]) == 0);
    }
    CHECK(unlink("file") == 0);
    return suite_end();
}
