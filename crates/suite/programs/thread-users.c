/* setegid and seteuid: by the library for all threads, by the bare call for one. For root only; others check that they may not. */
// suite: flags -pthread
#include "threads.h"
static pthread_barrier_t barrier;
static uid_t want;
static void *work(void *number) {
    for (int round = 0;; round++) {
        pthread_barrier_wait(&barrier);
        if (stopped()) return NULL;
        CHECK(geteuid() == want && getegid() == want && getuid() == 0);
        if (want == 0 && (long)number == 0) {
            CHECK(syscall(SYS_setresuid, -1, 1234, -1) == 0 && syscall(SYS_geteuid) == 1234);
            pthread_barrier_wait(&barrier);
            pthread_barrier_wait(&barrier);
            CHECK(syscall(SYS_setresuid, -1, 0, -1) == 0);
        } else {
            pthread_barrier_wait(&barrier);
            CHECK(geteuid() == want);
            pthread_barrier_wait(&barrier);
        }
        pthread_barrier_wait(&barrier);
    }
}
static void change(uid_t to) {
    if (to) CHECK(setegid(to) == 0 && seteuid(to) == 0);
    else CHECK(seteuid(to) == 0 && setegid(to) == 0);
    want = to;
    for (int i = 0; i < 4; i++) {
        pthread_barrier_wait(&barrier);
        CHECK(geteuid() == to && getegid() == to);
    }
}
static void *refused(void *unused) {
    (void)unused;
    CHECK_ERROR(seteuid(getuid() + 1), EPERM);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int root = getuid() == 0;
    pthread_t threads[3];
    CHECK(pthread_barrier_init(&barrier, NULL, 4) == 0);
    for (int i = 0; root && i < 3; i++) threads[i] = start(work, i);
    while (going_on()) {
        if (root) change(65534), change(0);
        else join(start(refused, 0));
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
        sleep_ms(1);
    }
    stop_all();
    if (root) pthread_barrier_wait(&barrier);
    for (int i = 0; root && i < 3; i++) join(threads[i]);
    return suite_end();
}
