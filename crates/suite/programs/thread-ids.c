/* gettid, getpid and tgkill fit together in every thread, and /proc/self/task lists exactly the threads there are. */
// suite: flags -pthread
#include "threads.h"
enum { COUNT = 4 };
static pid_t tids[COUNT + 1];
static pthread_barrier_t barrier;
static int listed(pid_t *found, int most) {
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && count < most) found[count++] = atoi(entry->d_name);
    CHECK(closedir(dir) == 0);
    return count;
}
static void *work(void *number) {
    pid_t pid = getpid(), tid = gettid();
    tids[(long)number] = tid;
    char path[64], link[64];
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 10; i++) {
        CHECK(syscall(SYS_getpid) == pid && syscall(SYS_gettid) == tid && tid != pid);
        CHECK(syscall(SYS_tgkill, pid, tid, 0) == 0 && syscall(SYS_tkill, tid, 0) == 0);
        CHECK_ERROR(syscall(SYS_tgkill, tid, tid, 0), ESRCH);
        sprintf(path, "%d/task/%d", pid, tid);
        ssize_t n = readlink("/proc/thread-self", link, sizeof link - 1);
        CHECK(n > 0 && (link[n] = 0, strcmp(link, path) == 0));
        CHECK(getsid(tid) == getsid(0) && getpgid(tid) == getpgrp());
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pthread_barrier_init(&barrier, NULL, COUNT + 1) == 0 && gettid() == getpid());
    tids[COUNT] = getpid();
    while (going_on()) {
        pthread_t threads[COUNT];
        pid_t found[64];
        for (int i = 0; i < COUNT; i++) threads[i] = start(work, i);
        pthread_barrier_wait(&barrier);
        CHECK(listed(found, 64) == COUNT + 1);
        for (int i = 0, k; i <= COUNT; i++) {
            for (k = 0; k <= COUNT && found[k] != tids[i]; k++) {
            }
            CHECK(k <= COUNT);
        }
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < COUNT; i++) join(threads[i]);
        /* The kernel wakes who joins a little before the thread is out of the list. */
        for (int n = 0; listed(found, 64) > 1; n++) {
            CHECK(n < 20000);
            sleep_ms(1);
        }
        CHECK_ERROR(syscall(SYS_tgkill, getpid(), tids[0], 0), ESRCH);
    }
    return suite_end();
}
