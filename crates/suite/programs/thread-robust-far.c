/* An owner of robust mutexes ends without touching them again, and they lie where nobody has looked lately: the kernel must find them all the same. */
// suite: flags -pthread
#include "threads.h"
#define PAGES 16384
#define HELD 12
static char *far;
static sem_t locked;
static pthread_mutex_t *place(int round, int i) {
    return (pthread_mutex_t *)(far + (size_t)((round * 977 + i * 1361) % PAGES) * 4096 + 64 * (i % 7));
}
static int now;
static void *die(void *unused) {
    (void)unused;
    for (int i = 0; i < HELD; i++) CHECK(pthread_mutex_lock(place(now, i)) == 0);
    CHECK(sem_post(&locked) == 0);
    sleep_ms(60);
    pthread_exit(NULL);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    far = mmap(NULL, (size_t)PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(far != MAP_FAILED);
    for (int i = 0; i < PAGES; i++) far[(size_t)i * 4096 + 4000] = (char)(i | 1);
    pthread_mutexattr_t robust;
    CHECK(pthread_mutexattr_init(&robust) == 0 && pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(sem_init(&locked, 0, 0) == 0);
    for (; going_on(); now++) {
        for (int i = 0; i < HELD; i++) CHECK(pthread_mutex_init(place(now, i), &robust) == 0);
        pthread_t thread = start(die, NULL);
        while (sem_wait(&locked) < 0) CHECK(errno == EINTR);
        for (int i = 0; i < HELD; i++) {
            CHECK(pthread_mutex_lock(place(now, i)) == EOWNERDEAD);
            CHECK(pthread_mutex_consistent(place(now, i)) == 0 && pthread_mutex_unlock(place(now, i)) == 0);
            CHECK(pthread_mutex_destroy(place(now, i)) == 0);
        }
        join(thread);
    }
    return suite_end();
}
