/* O_APPEND against a partner that appends too: no line is lost or torn. */
#include "suite.h"
static int stop[2];
static char line[64];
static void body(void) {
    int fd = open("file", O_WRONLY | O_APPEND);
    CHECK(fd >= 0);
    struct pollfd end = {stop[0], POLLIN, 0};
    close(stop[1]);
    unsigned count = 0;
    while (count < 20000 && poll(&end, 1, 1) == 0) {
        int n = sprintf(line, "p %u\n", count++);
        CHECK(write(fd, line, n) == n);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    CHECK(fd >= 0 && pipe(stop) == 0);
    pid_t pid = partner(body);
    close(stop[0]);
    unsigned mine = 0;
    while (going_on()) {
        if (mine == 200000) { /* a fast machine: enough lines, not yet enough time */
            poll(NULL, 0, 1);
            continue;
        }
        int n = sprintf(line, "m %u\n", mine++);
        CHECK(write(fd, line, n) == n);
        CHECK(lseek(fd, 0, SEEK_CUR) >= n);
    }
    close(stop[1]);
    CHECK(wait_for(pid) == 0);
    FILE *file = fopen("file", "r");
    CHECK(file);
    unsigned seen[2] = {0, 0}, number;
    char who;
    while (fscanf(file, "%c %u\n", &who, &number) == 2) CHECK(number == seen[who == 'p']++);
    CHECK(feof(file) && seen[0] == mine);
    return suite_end();
}
