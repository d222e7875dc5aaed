/* Barriers: in every phase each of five threads sees what all others wrote before, and one of them is the serial one. */
// suite: flags -pthread
#include "threads.h"
enum { COUNT = 5 };
static pthread_barrier_t barrier;
static unsigned long values[COUNT], serial, phases;
static void meet(void) {
    int result = pthread_barrier_wait(&barrier);
    CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
    if (result) __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST);
}
static void *work(void *number) {
    long me = (long)number;
    for (unsigned long phase = 1;; phase++) {
        values[me] = phase * (me + 3);
        if (me == 0 && !going_on()) stop_all();
        meet();
        for (int i = 0; i < COUNT; i++) CHECK(values[i] == phase * (i + 3));
        int end = stopped();
        meet();
        if (me == 0) phases = phase;
        if (end) return NULL;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pthread_barrier_init(&barrier, NULL, COUNT) == 0);
    pthread_t threads[COUNT];
    for (int i = 1; i < COUNT; i++) threads[i] = start(work, i);
    work(NULL);
    for (int i = 1; i < COUNT; i++) CHECK(join(threads[i]) == 0);
    CHECK(pthread_barrier_destroy(&barrier) == 0 && serial == phases * 2);
    return suite_end();
}
