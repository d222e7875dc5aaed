/* A file is read while another process changes it: appends, writes over it, cuts it short, puts another in its place, removes it. What has
 * been done when it says so is seen by the next read; a writer is not kept waiting. */
#include "suite.h"
#define SIZE 200000
static int orders[2], answers[2];
static char bytes[SIZE];
static void put(const char *name, int flags, size_t at, size_t n, unsigned seed) {
    int fd = open(name, flags, 0644);
    CHECK(fd >= 0);
    for (size_t i = 0; i < n; i++) bytes[i] = pattern_at(at + i, seed);
    if (n) CHECK(pwrite(fd, bytes, n, at) == (ssize_t)n);
    CHECK(close(fd) == 0);
}
static void writer(void) {
    struct {
        char what;
        unsigned seed;
    } order;
    for (;;) {
        read_all(orders[0], &order, sizeof order);
        switch (order.what) {
        case 'n': put("file", O_WRONLY | O_CREAT | O_TRUNC, 0, SIZE, order.seed); break;
        case 'o': put("file", O_RDWR, 70000, 50000, order.seed); break;
        case 'a': put("file", O_WRONLY | O_APPEND, SIZE, 5000, order.seed); break;
        case 't': CHECK(truncate("file", 100000) == 0); break;
        case 'z': put("file", O_WRONLY | O_TRUNC, 0, 0, 0); break;
        case 'm': {
            int fd = open("file", O_RDWR);
            char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            CHECK(map != MAP_FAILED && close(fd) == 0);
            for (int i = 0; i < 1000; i++) map[i] = pattern_at(i, order.seed);
            CHECK(munmap(map, SIZE) == 0);
            break;
        }
        case 'r':
            put("new", O_WRONLY | O_CREAT | O_TRUNC, 0, SIZE, order.seed);
            CHECK(rename("new", "file") == 0);
            break;
        case 'u': CHECK(unlink("file") == 0); break;
        case 'c': CHECK(chmod("file", 0600) == 0 && chmod("file", 0644) == 0); break;
        }
        write_all(answers[1], "", 1);
    }
}
static void change(char what, unsigned seed) {
    struct {
        char what;
        unsigned seed;
    } order = {what, seed};
    char byte;
    write_all(orders[1], &order, sizeof order);
    read_all(answers[0], &byte, 1);
}
static char in[SIZE + 6000];
/* Reads n bytes at the place and checks that they are what `seed` gives. */
static void expect(int fd, off_t at, size_t n, unsigned seed) {
    CHECK(lseek(fd, at, SEEK_SET) == at);
    for (size_t done = 0; done < n;) {
        size_t some = n - done < 16384 ? n - done : 16384;
        CHECK(read(fd, in, some) == (ssize_t)some);
        for (size_t i = 0; i < some; i++) CHECK((unsigned char)in[i] == pattern_at(at + done + i, seed));
        done += some;
    }
}
static void ends_at(int fd, off_t size) {
    CHECK(lseek(fd, size, SEEK_SET) == size && read(fd, in, 10) == 0 && lseek(fd, 0, SEEK_END) == size);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(orders) == 0 && pipe(answers) == 0);
    pid_t pid = partner(writer);
    for (unsigned round = 1; going_on(); round += 10) {
        change('n', round);
        int fd = open("file", O_RDONLY);
        CHECK(fd >= 0);
        expect(fd, 0, SIZE, round);
        expect(fd, 0, SIZE, round);
        change('c', 0);
        change('o', round + 1);
        expect(fd, 70000, 50000, round + 1);
        expect(fd, 0, 70000, round);
        expect(fd, 120000, SIZE - 120000, round);
        change('a', round + 2);
        expect(fd, SIZE, 5000, round + 2);
        ends_at(fd, SIZE + 5000);
        change('m', round + 3);
        expect(fd, 0, 1000, round + 3);
        expect(fd, 1000, 69000, round);
        change('t', 0);
        ends_at(fd, 100000);
        expect(fd, 70000, 30000, round + 1);
        change('r', round + 4);
        expect(fd, 70000, 30000, round + 1);
        ends_at(fd, 100000);
        int other = open("file", O_RDONLY);
        expect(other, 0, SIZE, round + 4);
        expect(other, 0, SIZE, round + 4);
        change('z', 0);
        ends_at(other, 0);
        change('n', round + 5);
        expect(other, 0, SIZE, round + 5);
        change('u', 0);
        expect(other, 0, SIZE, round + 5);
        ends_at(fd, 100000);
        CHECK(close(fd) == 0 && close(other) == 0);
    }
    kill(pid, SIGKILL);
    wait_for(pid);
    return suite_end();
}
