/* Descriptors and credentials sent over a socket. */
#include "suite.h"
union control {
    char room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    struct cmsghdr align;
};
static void send_fd(int socket, int fd) {
    char byte = 'f';
    struct iovec part = {&byte, 1};
    union control control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof fd)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(socket, &message, 0) == 1);
}
static int receive_fd(int socket) {
    char byte;
    struct iovec part = {&byte, 1};
    union control control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && byte == 'f' && !(message.msg_flags & MSG_CTRUNC));
    int fd = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(head), sizeof fd);
        if (head->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(head), sizeof who);
            CHECK(who.pid == getpid() && who.uid == getuid());
        }
    }
    return fd;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int pair[2], one = 1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one) == 0);
    for (unsigned round = 0; going_on(); round++) {
        int p[2];
        char in[4];
        CHECK(pipe(p) == 0);
        send_fd(pair[0], p[1]);
        CHECK(close(p[1]) == 0);
        int fd = receive_fd(pair[1]);
        CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && write(fd, "via", 4) == 4 && close(fd) == 0);
        CHECK(read(p[0], in, 4) == 4 && strcmp(in, "via") == 0 && read(p[0], in, 1) == 0 && close(p[0]) == 0);
    }
    return suite_end();
}
