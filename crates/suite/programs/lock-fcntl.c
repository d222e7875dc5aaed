/* fcntl locks against a partner: what one holds the other can't take; F_GETLK tells the holder; waiting works. */
#include "suite.h"
static int ask[2], answer[2];
static int lock(int fd, int command, int type, off_t start, off_t len) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &range);
}
static void body(void) {
    int fd = open("file", O_RDWR);
    char order, reply;
    close(ask[1]);
    CHECK(fd >= 0);
    while (read(ask[0], &order, 1) == 1) {
        reply = 'y';
        if (order == 't' && lock(fd, F_SETLK, F_WRLCK, 10, 10) < 0) reply = errno == EAGAIN || errno == EACCES ? 'n' : '?';
        if (order == 'l') CHECK(lock(fd, F_SETLKW, F_WRLCK, 10, 10) == 0);
        CHECK(write(answer[1], &reply, 1) == 1);
        if (order == 'l') sleep_ms(5);
        if (order == 'l' || order == 'u') CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    }
}
static char tell(char order) {
    char reply;
    CHECK(write(ask[1], &order, 1) == 1 && read(answer[0], &reply, 1) == 1);
    return reply;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && pipe(ask) == 0 && pipe(answer) == 0);
    pid_t pid = partner(body);
    close(ask[0]);
    while (going_on()) {
        CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 15) == 0 && tell('t') == 'n');
        CHECK(lock(fd, F_SETLK, F_UNLCK, 8, 7) == 0 && tell('t') == 'y');
        struct flock who = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100};
        CHECK(fcntl(fd, F_GETLK, &who) == 0 && who.l_type == F_WRLCK && who.l_pid == pid && who.l_start == 10);
        CHECK(tell('u') == 'y');
        CHECK(tell('l') == 'y' && lock(fd, F_SETLKW, F_WRLCK, 5, 10) == 0);
        CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    }
    close(ask[1]);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
