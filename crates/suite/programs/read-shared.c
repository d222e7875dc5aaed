/* A descriptor that is being read gets other owners: dup, F_DUPFD, fork, SCM_RIGHTS, pidfd_getfd. Its position is one for all of them, and
 * /proc and the program's other calls see it where it is. */
#include "suite.h"
#define SIZE 400000
static char in[50000];
static void next(int fd, off_t *at, size_t n) {
    CHECK(read(fd, in, n) == (ssize_t)n);
    for (size_t i = 0; i < n; i++) CHECK((unsigned char)in[i] == pattern_at(*at + i, 3));
    *at += n;
}
static int fresh(off_t *at) {
    int fd = open("file", O_RDONLY);
    CHECK(fd >= 0);
    *at = 0;
    for (int i = 0; i < 8; i++) next(fd, at, 5000);
    return fd;
}
static void both(int one, int two, off_t at) {
    for (int i = 0; i < 4; i++) {
        next(one, &at, 3000);
        next(two, &at, 700);
    }
    CHECK(lseek(two, 123, SEEK_SET) == 123 && lseek(one, 0, SEEK_CUR) == 123);
    at = 123;
    next(one, &at, 1000);
    next(two, &at, 1000);
    CHECK(close(one) == 0);
    next(two, &at, 1000);
    CHECK(close(two) == 0);
}
static void in_proc(int fd, off_t at) {
    char name[64], text[200] = "";
    sprintf(name, "/proc/self/fdinfo/%d", fd);
    int info = open(name, O_RDONLY);
    CHECK(info >= 0 && read(info, text, sizeof text - 1) > 0 && close(info) == 0);
    CHECK(strncmp(text, "pos:", 4) == 0 && atol(text + 4) == at);
    sprintf(name, "/proc/self/fd/%d", fd);
    int again = open(name, O_RDONLY);
    off_t start = 0;
    for (int i = 0; i < 5; i++) next(again, &start, 10000);
    next(fd, &at, 10);
    CHECK(lseek(again, 0, SEEK_CUR) == 50000 && close(again) == 0);
}
static void child(int fd, off_t at) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        off_t there = at;
        next(fd, &there, 4000);
        next(fd, &there, 4000);
        write_all(ready[1], "", 1);
        pause();
        _exit(9);
    }
    read_all(ready[0], &byte, 1);
    at += 8000;
    next(fd, &at, 4000);
    next(fd, &at, 4000);
    kill(pid, SIGKILL);
    wait_for(pid);
    next(fd, &at, 4000);
    CHECK(close(ready[0]) == 0 && close(ready[1]) == 0);
}
static int sent(int fd) {
    static int pair[2];
    if (!pair[1]) CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char byte = 'f', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(pair[0], &message, 0) == 1 && recvmsg(pair[1], &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *data = malloc(SIZE);
    fill(data, SIZE, 3);
    int out = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write_all(out, data, SIZE);
    CHECK(close(out) == 0);
    for (unsigned round = 0; going_on(); round++) {
        off_t at;
        int fd = fresh(&at), other;
        switch (round % 7) {
        case 0: both(fd, dup(fd), at); break;
        case 1: both(fd, fcntl(fd, F_DUPFD_CLOEXEC, 50), at); break;
        case 2: both(fd, dup3(fd, 60, 0), at); break;
        case 3: both(fd, sent(fd), at); break;
        case 4:
            other = syscall(SYS_pidfd_open, getpid(), 0);
            both(fd, syscall(SYS_pidfd_getfd, other, fd, 0), at);
            CHECK(close(other) == 0);
            break;
        case 5:
            in_proc(fd, at);
            CHECK(close(fd) == 0);
            break;
        case 6:
            child(fd, at);
            CHECK(close(fd) == 0);
            break;
        }
        /* The number means another file from now on. */
        fd = open("file", O_RDONLY);
        other = open("/dev/zero", O_RDONLY);
        CHECK(dup2(other, fd) == fd && read(fd, in, 100) == 100 && in[50] == 0);
        CHECK(close(fd) == 0 && close(other) == 0);
        CHECK_ERROR(read(fd, in, 10), EBADF);
    }
    return suite_end();
}
