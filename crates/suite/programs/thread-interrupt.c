/* A signal to one of three blocked threads: only its read ends with EINTR; with SA_RESTART none does. */
// suite: flags -pthread
#include "threads.h"
static int pipes[3][2];
static __thread volatile int came;
static int handled, entered[3], interrupted[3], bytes[3];
static void handler(int signal) {
    (void)signal;
    came++;
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}
static void *read_on(void *number) {
    long me = (long)number;
    for (char byte;;) {
        __atomic_store_n(&entered[me], 1, __ATOMIC_SEQ_CST);
        ssize_t got = read(pipes[me][0], &byte, 1);
        if (got == 0) return NULL;
        if (got < 0) CHECK(errno == EINTR && came > 0);
        __atomic_add_fetch(got < 0 ? &interrupted[me] : &bytes[me], 1, __ATOMIC_SEQ_CST);
    }
}
static void await(int *value, int want) {
    for (int n = 0; __atomic_load_n(value, __ATOMIC_SEQ_CST) != want; n++) {
        CHECK(n < 20000);
        sleep_ms(1);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR1, handler, 0);
    on(SIGUSR2, handler, SA_RESTART);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pipe(pipes[i]) == 0);
    for (int i = 0; i < 3; i++) threads[i] = start(read_on, i);
    int want[3] = {0}, sent[3] = {0}, signals = 0;
    for (int round = 0; going_on(); round++) {
        int i = round % 3;
        await(&entered[i], 1);
        CHECK(pthread_kill(threads[i], SIGUSR2) == 0);
        await(&handled, ++signals);
        CHECK(write(pipes[i][1], "x", 1) == 1);
        await(&bytes[i], ++sent[i]);
        CHECK(interrupted[i] == want[i]);
        /* Whether it is back in read when the signal comes can't be known: it is sent till one interrupts. */
        for (int n = 0; __atomic_load_n(&interrupted[i], __ATOMIC_SEQ_CST) == want[i]; n++) {
            CHECK(n < 2000 && pthread_kill(threads[i], SIGUSR1) == 0);
            await(&handled, ++signals);
            sleep_ms(1);
        }
        CHECK(write(pipes[i][1], "x", 1) == 1);
        await(&bytes[i], ++sent[i]);
        want[i] = interrupted[i];
        for (int k = 0; k < 3; k++) CHECK(bytes[k] == sent[k] && interrupted[k] == want[k]);
    }
    for (int i = 0; i < 3; i++) CHECK(close(pipes[i][1]) == 0 && join(threads[i]) == 0);
    return suite_end();
}
