/* Threads and one file: appended lines stay whole, a shared position gives every part once, pread and pwrite keep to theirs. */
// suite: flags -pthread
#include "threads.h"
static int log_file, parts, table;
static long taken, lines;
static void *work(void *number) {
    long me = (long)number;
    char line[100];
    unsigned char data[700], in[700];
    for (unsigned round = 0; !stopped(); round++) {
        int n = sprintf(line, "%ld %u %*s\n", me, round, (int)(round % 30) + 1, "end");
        CHECK(write(log_file, line, n) == n);
        __atomic_add_fetch(&lines, 1, __ATOMIC_SEQ_CST);
        uint32_t part;
        ssize_t got = read(parts, &part, sizeof part);
        if (got) {
            CHECK(got == sizeof part);
            __atomic_add_fetch(&taken, part, __ATOMIC_SEQ_CST);
        }
        fill(data, sizeof data, round + me);
        CHECK(pwrite(table, data, sizeof data, me * 700) == 700 && pread(table, in, sizeof in, me * 700) == 700);
        CHECK(memcmp(data, in, sizeof in) == 0);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    uint32_t numbers[300];
    long sum = 0, next[3] = {0}, count = 0;
    for (int i = 0; i < 300; i++) sum += numbers[i] = i * i + 1;
    CHECK((log_file = open("log", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600)) >= 0);
    CHECK((parts = open("parts", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    CHECK((table = open("table", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    write_all(parts, numbers, sizeof numbers);
    CHECK(lseek(parts, 0, SEEK_SET) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    while (going_on()) sleep_ms(2);
    for (uint32_t part; read(parts, &part, sizeof part) == sizeof part;) __atomic_add_fetch(&taken, part, __ATOMIC_SEQ_CST);
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    CHECK(taken == sum);
    FILE *log = fopen("log", "r");
    char line[100];
    for (; log && fgets(line, sizeof line, log); count++) {
        long me = line[0] - '0';
        CHECK(me >= 0 && me < 3 && atol(line + 2) == next[me]++ && strcmp(line + strlen(line) - 4, "end\n") == 0);
    }
    CHECK(count == lines && unlink("log") == 0 && unlink("parts") == 0 && unlink("table") == 0);
    return suite_end();
}
