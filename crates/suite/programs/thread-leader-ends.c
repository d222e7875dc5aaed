/* The first thread ends by pthread_exit; the others go on, and the last of them ends the process with status 0. */
// suite: flags -pthread
// suite: may stay: its first thread has ended
#include "threads.h"
static int left = 2;
static pthread_t first;
static void *work(void *number) {
    unsigned char data[5000];
    CHECK((long)number == 0 ? join(first) == 0 : 1);
    for (unsigned round = 0; !stopped(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round) && getpid() != gettid());
        if ((long)number == 0 && !going_on()) stop_all();
    }
    if (__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) == 0) suite_end();
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    first = pthread_self();
    CHECK(pthread_detach(start(work, 0)) == 0);
    start(work, 1);
    unsigned char data[5000];
    for (unsigned round = 0; elapsed_ms() < suite_ms / 3; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    pthread_exit(NULL);
}
