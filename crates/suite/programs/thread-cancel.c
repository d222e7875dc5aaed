/* pthread_cancel: of threads in read, in a condition, in sleep and in computing, with cleanup; not while it is disabled. */
// suite: flags -pthread
#include "threads.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int p[2], cleaned, past;
static void clean(void *unused) {
    (void)unused;
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}
static void unlock(void *unused) {
    (void)unused;
    CHECK(pthread_mutex_unlock(&lock) == 0);
}
static void *work(void *number) {
    char byte;
    pthread_cleanup_push(clean, NULL);
    switch ((long)number) {
    case 0: CHECK(read(p[0], &byte, 1) == -2); break;
    case 1:
        CHECK(pthread_mutex_lock(&lock) == 0);
        pthread_cleanup_push(unlock, NULL);
        for (;;) CHECK(pthread_cond_wait(&never, &lock) == 0);
        pthread_cleanup_pop(0);
        break;
    case 2: for (;;) sleep(1000);
    case 3:
        CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0);
        for (volatile unsigned sum = 0;;) sum++;
    default:
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
        sleep_ms(4);
        __atomic_add_fetch(&past, 1, __ATOMIC_SEQ_CST);
        CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
        for (;;) pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(pipe(p) == 0);
    for (int round = 0; going_on(); round++) {
        pthread_t threads[5];
        for (int i = 0; i < 5; i++) threads[i] = start(work, i);
        sleep_ms(round % 3 * 2);
        for (int i = 0; i < 5; i++) CHECK(pthread_cancel(threads[i]) == 0);
        for (int i = 0; i < 5; i++) CHECK((void *)join(threads[i]) == PTHREAD_CANCELED);
        CHECK(cleaned == 5 * (round + 1) && past == round + 1);
        CHECK(pthread_mutex_trylock(&lock) == 0 && pthread_mutex_unlock(&lock) == 0);
    }
    return suite_end();
}
