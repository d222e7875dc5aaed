/* Files of some megabytes in large pieces: a number means one file and then another, duplicates and a signal's handler read on, threads come and go
 * between reads that move the position and read by offset meanwhile, a buffer can be written to only in part. */
// suite: flags -pthread
#include "threads.h"
#define SIZE 2900007
#define FILES 3
static int fd, taken, files[FILES];
static off_t in_handler;
static unsigned char in[1 << 20], small[70000];
static int of(const unsigned char *bytes, off_t at, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != pattern_at(at + i, seed)) return 0;
    return 1;
}
static void is(const unsigned char *bytes, off_t at, size_t n, unsigned seed) { CHECK(of(bytes, at, n, seed)); }
static void on_alarm(int signal) {
    (void)signal;
    if (!taken) return;
    ssize_t got = read(fd, small, 999);
    CHECK(got >= 0);
    in_handler += got;
}
/* Everything from here to the end; whatever a handler takes in between is not repeated. */
static void through(unsigned round, unsigned seed) {
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    off_t total = 0;
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    in_handler = 0;
    if (taken) setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned i = round;; i++) {
        size_t n = i % 7 == 0 ? sizeof in : 1 + i * 7919 % 200000;
        ssize_t got = read(fd, in, n);
        CHECK(got >= 0);
        if (!got) break;
        if (!taken) is(in, total, got, seed);
        total += got;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(total + in_handler == SIZE && lseek(fd, 0, SEEK_CUR) == SIZE);
}
static void *offsets(void *number) {
    unsigned char mine[50000];
    for (unsigned i = 0; i < 30; i++) {
        off_t at = ((long)number * 611953 + i * 40503) % SIZE;
        ssize_t expect = at + (off_t)sizeof mine < SIZE ? (ssize_t)sizeof mine : SIZE - at;
        CHECK(pread(fd, mine, sizeof mine, at) == expect);
        is(mine, at, expect, 0);
    }
    return NULL;
}
/* A number that means two files in turn while another thread reads what it means: of one or of the other, and nothing else. */
static int turning, done;
static void *turns(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST))
        for (int i = 0; i < FILES; i++) CHECK(dup2(files[i], turning) == turning);
    return NULL;
}
static void while_it_turns(void) {
    turning = dup(files[0]), done = 0;
    pthread_t other = start(turns, 0);
    for (unsigned i = 0; i < 60; i++) {
        off_t at = i * 40503 % (SIZE - (off_t)sizeof small);
        CHECK(pread(turning, small, sizeof small, at) == sizeof small);
        unsigned seed = 0;
        while (seed < FILES && !of(small, at, sizeof small, seed)) seed++;
        CHECK(seed < FILES);
    }
    __atomic_store_n(&done, 1, __ATOMIC_SEQ_CST);
    join(other);
    CHECK(close(turning) == 0);
}
static void in_part(void) {
    char *map = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED && mprotect(map + 40 * 4096, 4096, PROT_READ) == 0);
    CHECK(lseek(fd, 5000, SEEK_SET) == 5000);
    ssize_t got = read(fd, map + 5, 64 * 4096 - 5);
    CHECK(got == 40 * 4096 - 5 && lseek(fd, 0, SEEK_CUR) == 5000 + got);
    is((unsigned char *)map + 5, 5000, got, 0);
    CHECK_ERROR(read(fd, map + 40 * 4096, 4096), EFAULT);
    CHECK(lseek(fd, 0, SEEK_CUR) == 5000 + got && munmap(map, 64 * 4096) == 0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *data = malloc(SIZE), name[] = "file0";
    for (unsigned i = 0; i < FILES; i++, name[4]++) {
        fill(data, SIZE, i);
        int out = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        write_all(out, data, SIZE);
        CHECK(close(out) == 0);
    }
    free(data);
    on(SIGALRM, on_alarm, SA_RESTART);
    for (unsigned round = 0; going_on(); round++) {
        for (unsigned i = 0; i < FILES; i++) {
            name[4] = '0' + i;
            CHECK((files[i] = open(name, O_RDONLY)) >= 0);
        }
        /* The same number for all of them. */
        fd = dup(files[2]);
        for (unsigned i = 0; i < FILES; i++) {
            CHECK(dup2(files[i], fd) == fd);
            through(round, i);
            CHECK(lseek(files[i], 0, SEEK_CUR) == SIZE);
        }
        CHECK(dup2(files[0], fd) == fd);
        in_part();
        taken = 1;
        through(round, 0);
        taken = 0;
        /* Threads read by offset; when they are gone the position is where it was. */
        CHECK(lseek(fd, 777, SEEK_SET) == 777 && read(fd, in, 300000) == 300000);
        pthread_t threads[2] = {start(offsets, 1), start(offsets, 2)};
        CHECK(read(fd, in, 100000) == 100000);
        is(in, 300777, 100000, 0);
        for (int i = 0; i < 2; i++) join(threads[i]);
        CHECK(read(files[0], in, 200000) == 200000);
        is(in, 400777, 200000, 0);
        CHECK(lseek(fd, 0, SEEK_CUR) == 600777);
        while_it_turns();
        /* A high number. */
        int high = fcntl(fd, F_DUPFD, 1000);
        CHECK(high >= 1000 && read(high, in, 100000) == 100000);
        is(in, 600777, 100000, 0);
        CHECK(close(high) == 0 && close(fd) == 0);
        for (unsigned i = 0; i < FILES; i++) CHECK(close(files[i]) == 0);
    }
    return suite_end();
}
