/* fork while other threads compute and hold locks: the child has one thread, its memory is whole, and it may exec. */
// suite: flags -pthread
#include "threads.h"
static unsigned char data[60000];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *number) {
    unsigned char mine[4000];
    for (unsigned round = (long)number; !stopped(); round++) {
        fill(mine, sizeof mine, round);
        CHECK(pthread_mutex_lock(&lock) == 0);
        CHECK(filled(mine, sizeof mine, round));
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return NULL;
}
static void take(void) { pthread_mutex_lock(&lock); }
static void give(void) { pthread_mutex_unlock(&lock); }
static int tasks(void) {
    struct stat info;
    return stat("/proc/self/task", &info) == 0 ? (int)info.st_nlink - 2 : -1;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pthread_atfork(take, give, give) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    for (int round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            if (tasks() != 1 || gettid() != getpid() || !filled(data, sizeof data, round)) _exit(99);
            if (pthread_mutex_trylock(&lock) != 0) _exit(98);
            memset(data, 0, sizeof data);
            if (round % 2) execl("/bin/true", "true", NULL);
            _exit(round % 2 ? 97 : round % 90);
        }
        int status = wait_for(pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (round % 2 ? 0 : round % 90));
        CHECK(filled(data, sizeof data, round));
        sleep_ms(4);
    }
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
