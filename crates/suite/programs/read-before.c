/* Descriptors that were there before the move: one that nobody else has, two of one open file description, one that a child has, too, and one that a
 * child had. Whoever moves one of them, all others find it there. */
#include "suite.h"
#define SIZE 300000
static char in[20000];
static void next(int fd, off_t *at, size_t n) {
    if (*at + (off_t)n > SIZE) CHECK(lseek(fd, *at = 0, SEEK_SET) == 0);
    CHECK(read(fd, in, n) == (ssize_t)n);
    for (size_t i = 0; i < n; i++) CHECK((unsigned char)in[i] == pattern_at(*at + i, 7));
    *at += n;
}
/* Reads a piece whenever a byte comes, and says how far it is. */
static void child(int fd, int asked, int told) {
    off_t at;
    while (read(asked, &at, sizeof at) == sizeof at) {
        CHECK(lseek(fd, 0, SEEK_CUR) == at);
        next(fd, &at, 1 + at % 900);
        write_all(told, (char *)&at, sizeof at);
    }
    _exit(0);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char *data = malloc(SIZE);
    fill(data, SIZE, 7);
    int out = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644), there[2], back[2];
    write_all(out, data, SIZE);
    CHECK(close(out) == 0 && pipe(there) == 0 && pipe(back) == 0);
    int own = open("file", O_RDONLY), one = open("file", O_RDONLY), two = dup(one), ours = open("file", O_RDONLY);
    off_t own_at = 0, one_at = 0, ours_at = 0;
    pid_t pid = fork();
    CHECK(own >= 0 && two >= 0 && ours >= 0 && pid >= 0);
    if (pid == 0) {
        CHECK(close(there[1]) == 0 && close(own) == 0 && close(one) == 0 && close(two) == 0);
        child(ours, there[0], back[1]);
    }
    CHECK(close(there[0]) == 0 && close(back[1]) == 0);
    for (unsigned round = 0; going_on(); round++) {
        next(own, &own_at, 1 + round % 7000);
        next(own, &own_at, 4096);
        next(one, &one_at, 1000);
        next(two, &one_at, 1 + round % 5000);
        CHECK(lseek(round % 2 ? one : two, 0, SEEK_CUR) == one_at);
        for (unsigned i = 0; i < 1 + round % 5; i++) next(ours, &ours_at, 100 + 17 * i);
        write_all(there[1], (char *)&ours_at, sizeof ours_at);
        read_all(back[0], (char *)&ours_at, sizeof ours_at);
        if (round % 40 == 39) {
            /* One that is made of the others has them, too, and leaves. */
            pid_t other = fork();
            CHECK(other >= 0);
            if (other == 0) {
                next(own, &own_at, 333);
                next(two, &one_at, 444);
                _exit(0);
            }
            CHECK(WEXITSTATUS(wait_for(other)) == 0);
            CHECK((own_at = lseek(own, 0, SEEK_CUR)) >= 333 && (one_at = lseek(one, 0, SEEK_CUR)) >= 444);
        }
    }
    CHECK(close(there[1]) == 0 && WEXITSTATUS(wait_for(pid)) == 0);
    return suite_end();
}
