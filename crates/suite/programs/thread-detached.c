/* Detached threads: born so, detached by themselves, or by who made them; each does its work once and is gone. */
// suite: flags -pthread
#include "threads.h"
static sem_t done;
static long sum;
static void *work(void *number) {
    if ((long)number % 3 == 1) CHECK(pthread_detach(pthread_self()) == 0);
    unsigned char data[3000];
    fill(data, sizeof data, (long)number);
    CHECK(filled(data, sizeof data, (long)number));
    __atomic_add_fetch(&sum, (long)number, __ATOMIC_SEQ_CST);
    CHECK(sem_post(&done) == 0);
    return NULL;
}
static int tasks(void) {
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
    CHECK(closedir(dir) == 0);
    return count;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_attr_t born;
    CHECK(sem_init(&done, 0, 0) == 0 && pthread_attr_init(&born) == 0);
    CHECK(pthread_attr_setdetachstate(&born, PTHREAD_CREATE_DETACHED) == 0);
    CHECK(pthread_attr_setstacksize(&born, 65536) == 0);
    while (going_on()) {
        sum = 0;
        for (long i = 0; i < 6; i++) {
            pthread_t thread;
            CHECK(pthread_create(&thread, i % 3 == 0 ? &born : NULL, work, (void *)i) == 0);
            if (i % 3 == 2) CHECK(pthread_detach(thread) == 0);
        }
        for (int i = 0; i < 6; i++)
            while (sem_wait(&done) < 0) CHECK(errno == EINTR);
        CHECK(sum == 15);
        for (int i = 0; tasks() > 1; i++) {
            CHECK(i < 20000);
            sleep_ms(1);
        }
    }
    return suite_end();
}
