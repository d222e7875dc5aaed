/* A signal without handler to one of the threads (tgkill) kills the whole process. */
// suite: flags -pthread
// suite: ends signal 10
#include "threads.h"
static void *work(void *unused) {
    (void)unused;
    unsigned char data[5000];
    for (unsigned round = 0;; round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
}
static void *rest(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    start(work, 0);
    pthread_t victim = start(rest, 0);
    while (going_on()) sleep_ms(1);
    suite_end();
    pthread_kill(victim, SIGUSR1);
    join(victim);
    return 1;
}
