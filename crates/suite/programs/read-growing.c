/* A file grows while it is read to its end again and again, and is read once more from its beginning when nobody writes. */
#include "suite.h"
static int orders[2];
static void writer(void) {
    char line[6000], byte;
    int fd = -1;
    for (unsigned seed = 0;; seed++) {
        read_all(orders[0], &byte, 1);
        if (byte == 'e') {
            close(fd);
            fd = -1;
            continue;
        }
        if (fd < 0) fd = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
        for (int i = 0; i < 30; i++) {
            fill(line, sizeof line, i);
            write_all(fd, line, i % 2 ? sizeof line : 100);
        }
    }
}
static char in[9000], expected[30 * 6000];
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    size_t total = 0;
    for (int i = 0; i < 30; i++) {
        fill(expected + total, 6000, i);
        total += i % 2 ? 6000 : 100;
    }
    CHECK(pipe(orders) == 0);
    CHECK(close(open("log", O_WRONLY | O_CREAT, 0644)) == 0);
    pid_t pid = partner(writer);
    for (unsigned round = 0; going_on(); round++) {
        CHECK(truncate("log", 0) == 0);
        int fd = open("log", O_RDONLY);
        CHECK(read(fd, in, sizeof in) == 0);
        write_all(orders[1], "w", 1);
        size_t done = 0;
        while (done < total) {
            ssize_t got = read(fd, in, 1 + (done * 31 + round) % sizeof in);
            CHECK(got >= 0 && memcmp(in, expected + done, got) == 0);
            done += got;
            if (got == 0) sched_yield();
        }
        write_all(orders[1], "e", 1);
        for (int pass = 0; pass < 3; pass++) {
            CHECK(lseek(fd, 0, SEEK_SET) == 0);
            for (done = 0; done < total;) {
                ssize_t got = read(fd, in, 4096);
                CHECK(got > 0 && memcmp(in, expected + done, got) == 0);
                done += got;
            }
            CHECK(read(fd, in, 1) == 0);
        }
        CHECK(close(fd) == 0);
    }
    kill(pid, SIGKILL);
    wait_for(pid);
    return suite_end();
}
