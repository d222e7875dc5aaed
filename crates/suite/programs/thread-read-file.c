/* Threads that read one descriptor: every record comes once and whole, whatever is sought and opened meanwhile. */
// suite: flags -pthread
#include "threads.h"
#define RECORDS 60000
static int fd, over;
static long sum;
static pthread_barrier_t begin, end;
static void take(unsigned round, long me) {
    uint32_t some[64];
    for (;;) {
        size_t n = 4 * (1 + (round + me * 7) % 64);
        ssize_t got = read(fd, some, n);
        CHECK(got >= 0 && got % 4 == 0);
        if (!got) break;
        uint64_t part = 0;
        for (int i = 0; i < got / 4; i++) {
            CHECK(!i || some[i] == some[i - 1] + 1);
            part += some[i];
        }
        __atomic_add_fetch(&sum, part, __ATOMIC_SEQ_CST);
        uint32_t one;
        off_t at = (some[0] * 31 % RECORDS) * 4;
        CHECK(pread(fd, &one, 4, at) == 4 && one == at / 4);
        if (some[0] % 3 == 0) CHECK(lseek(fd, 0, SEEK_CUR) % 4 == 0);
        round++;
    }
}
static void *work(void *number) {
    for (unsigned round = 0;; round++) {
        pthread_barrier_wait(&begin);
        if (over) return NULL;
        take(round, (long)number);
        pthread_barrier_wait(&end);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static uint32_t records[RECORDS];
    for (uint32_t i = 0; i < RECORDS; i++) records[i] = i;
    int out = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write_all(out, records, sizeof records);
    CHECK(close(out) == 0);
    pthread_barrier_init(&begin, NULL, 4);
    pthread_barrier_init(&end, NULL, 4);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i + 1);
    for (unsigned round = 0; going_on(); round++) {
        sum = 0;
        fd = open("file", O_RDONLY);
        CHECK(fd >= 0);
        pthread_barrier_wait(&begin);
        take(round, 0);
        pthread_barrier_wait(&end);
        CHECK(sum == (long)RECORDS * (RECORDS - 1) / 2 && lseek(fd, 0, SEEK_CUR) == sizeof records);
        CHECK(close(fd) == 0);
    }
    over = 1;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
