/* File positions and flags are shared by parent and children, descriptors are not; with separate opens nothing is. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    for (int round = 0; going_on(); round++) {
        unsigned char data[900], in[900];
        int own = open("file", O_RDONLY), extra = dup(fd);
        fill(data, sizeof data, round);
        CHECK(own >= 0 && extra >= 0 && ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
        write_all(fd, data, 300);
        for (int child = 1; child < 3; child++) {
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                CHECK(lseek(fd, 0, SEEK_CUR) == child * 300 && lseek(own, child, SEEK_SET) == child);
                write_all(fd, data + child * 300, 300);
                CHECK(fcntl(fd, F_SETFL, child == 1 ? O_APPEND : 0) == 0 && close(extra) == 0);
                _exit(child);
            }
            CHECK(WEXITSTATUS(wait_for(pid)) == child && lseek(fd, 0, SEEK_CUR) == 300 + child * 300);
            CHECK(!(fcntl(fd, F_GETFL) & O_APPEND) == (child == 2) && fcntl(extra, F_GETFD) == 0);
            CHECK(lseek(own, 0, SEEK_CUR) == child && lseek(extra, 0, SEEK_CUR) == 300 + child * 300);
        }
        CHECK(pread(fd, in, sizeof in, 0) == sizeof in && filled(in, sizeof in, round));
        CHECK(close(own) == 0 && close(extra) == 0);
        sleep_ms(2);
    }
    CHECK(close(fd) == 0 && unlink("file") == 0);
    return suite_end();
}
