/* Memory comes and goes, and what is in it goes through a file, while job control stops and continues the program. */
// suite: flags -pthread
#include "threads.h"
enum { PAGES = 6, BYTES = PAGES * 4096 };
static void *work(void *number) {
    int file = open(number ? "one" : "two", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    for (unsigned round = 0; !stopped(); round++) {
        unsigned char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        fill(at, BYTES, round);
        CHECK(pwrite(file, at, BYTES, 0) == BYTES);
        CHECK(madvise(at + 4096, 4096, MADV_DONTNEED) == 0 && mprotect(at, 4096, PROT_READ) == 0);
        CHECK(munmap(at + 2 * 4096, 4096) == 0);
        unsigned char *copy = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(copy != MAP_FAILED && pread(file, copy, BYTES, 0) == BYTES && filled(copy, BYTES, round));
        CHECK(memcmp(at, copy, 4096) == 0 && memcmp(at + 3 * 4096, copy + 3 * 4096, BYTES - 3 * 4096) == 0);
        for (int i = 0; i < 4096; i++) CHECK(at[4096 + i] == 0);
        // What may not be read is not read by home's kernel either.
        CHECK(mprotect(at, 4096, PROT_NONE) == 0);
        CHECK_ERROR(pwrite(file, at, 4096, 0), EFAULT);
        CHECK(munmap(at, BYTES) == 0);
        CHECK(pwrite(file, copy + 4096, 4096, 0) == 4096 && munmap(copy, BYTES) == 0);
        if (round % 8 == 0) sleep_ms(1);
    }
    return NULL;
}
static void body(void) {
    for (int i = 0;; i++) {
        sleep_ms(7 + i % 11);
        if (kill(getppid(), SIGSTOP) < 0) return;
        sleep_ms(1 + i % 9);
        if (kill(getppid(), SIGCONT) < 0) return;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pid_t pid = partner(body);
    pthread_t other = start(work, 1);
    pthread_t third;
    while (going_on()) {
        sleep_ms(20);
        third = start(work, 0);
        sleep_ms(20);
        stop_all();
        join(third);
        join(other);
        __atomic_store_n(&stop, 0, __ATOMIC_SEQ_CST);
        other = start(work, 1);
    }
    stop_all();
    join(other);
    kill(pid, SIGKILL);
    CHECK(WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
