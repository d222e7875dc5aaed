/* Semaphores: two threads take turns; of four others never more than two are inside. */
// suite: flags -pthread
#include "threads.h"
static sem_t ping, pong, room;
static long turns, answers;
static int inside;
static void *answer(void *unused) {
    (void)unused;
    for (;; answers++) {
        while (sem_wait(&ping) < 0) CHECK(errno == EINTR);
        if (stopped()) return NULL;
        CHECK(turns == answers + 1 && sem_post(&pong) == 0);
    }
}
static void *visit(void *unused) {
    (void)unused;
    for (volatile unsigned sum = 0; !stopped();) {
        while (sem_wait(&room) < 0) CHECK(errno == EINTR);
        int now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        CHECK(now == 1 || now == 2);
        for (int i = 0; i < 2000; i++) sum += i;
        CHECK(__atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST) <= 1 && sem_post(&room) == 0);
    }
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    CHECK(sem_init(&ping, 0, 0) == 0 && sem_init(&pong, 0, 0) == 0 && sem_init(&room, 0, 2) == 0);
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) threads[i] = start(i ? visit : answer, i);
    while (going_on()) {
        turns++;
        CHECK(sem_post(&ping) == 0);
        while (sem_wait(&pong) < 0) CHECK(errno == EINTR);
    }
    stop_all();
    CHECK(sem_post(&ping) == 0);
    for (int i = 0; i < 5; i++) join(threads[i]);
    int value;
    CHECK(answers == turns && sem_getvalue(&room, &value) == 0 && value == 2);
    CHECK_ERROR(sem_trywait(&pong), EAGAIN);
    return suite_end();
}
