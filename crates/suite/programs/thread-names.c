/* Names of threads: by prctl, by pthread_setname_np for oneself and another, by /proc; each has its own. */
// suite: flags -pthread
#include "threads.h"
static pthread_barrier_t barrier;
static void by_proc(pid_t tid, char name[32]) {
    char path[64];
    sprintf(path, "/proc/self/task/%d/comm", tid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t n = read(fd, name, 31);
    CHECK(n > 0 && name[n - 1] == '\n' && close(fd) == 0);
    name[n - 1] = 0;
}
static void *work(void *number) {
    char want[32], name[32];
    for (int round = 0; round < 5; round++) {
        sprintf(want, "%ld-of-round-%d", (long)number, round);
        if (round % 2) CHECK(prctl(PR_SET_NAME, want) == 0);
        else CHECK(pthread_setname_np(pthread_self(), want) == 0);
        CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, want) == 0);
        by_proc(gettid(), name);
        CHECK(strcmp(name, want) == 0);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "given") == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char mine[32], name[32];
    CHECK(pthread_barrier_init(&barrier, NULL, 4) == 0 && prctl(PR_SET_NAME, "the-first") == 0);
    while (going_on()) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) threads[i] = start(work, i);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 3; i++) {
            sprintf(mine, "%d-of-round-4", i);
            CHECK(pthread_getname_np(threads[i], name, sizeof name) == 0 && strcmp(name, mine) == 0);
            CHECK(pthread_setname_np(threads[i], "given") == 0);
        }
        CHECK(pthread_setname_np(threads[0], "a-name-that-is-too-long") == ERANGE);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 3; i++) join(threads[i]);
        by_proc(getpid(), name);
        CHECK(strcmp(name, "the-first") == 0);
    }
    return suite_end();
}
