/* Waits with a limit from their start on (sigtimedwait, semtimedop, epoll, select, ppoll, nanosleep): moved in the middle of them, again and
 * again, they end when they would have ended unmoved. */
// suite: flags -pthread
#include "threads.h"
#include <sys/epoll.h>
#include <sys/sem.h>
#define LIMIT_MS 1000
static int epoll, semaphores;
static sigset_t signals;
static void by_sigtimedwait(struct timespec limit) {
    CHECK_ERROR(sigtimedwait(&signals, NULL, &limit), EAGAIN);
    CHECK(limit.tv_sec == LIMIT_MS / 1000 && limit.tv_nsec == 0);
}
static void by_semtimedop(struct timespec limit) {
    struct sembuf take = {0, -1, 0};
    CHECK_ERROR(semtimedop(semaphores, &take, 1, &limit), EAGAIN);
    CHECK(limit.tv_sec == LIMIT_MS / 1000 && limit.tv_nsec == 0);
}
static void by_epoll_wait(struct timespec limit) {
    struct epoll_event event;
    (void)limit;
    CHECK(epoll_wait(epoll, &event, 1, LIMIT_MS) == 0);
}
static void by_epoll_pwait2(struct timespec limit) {
    struct epoll_event event;
    CHECK(syscall(441, epoll, &event, 1, &limit, NULL, 0L) == 0);
    CHECK(limit.tv_sec == LIMIT_MS / 1000 && limit.tv_nsec == 0);
}
static void by_select(struct timespec limit) {
    struct timeval left = {LIMIT_MS / 1000, 0};
    CHECK(select(0, NULL, NULL, NULL, &left) == 0);
}
static void by_ppoll(struct timespec limit) {
    CHECK(ppoll(NULL, 0, &limit, NULL) == 0);
}
static void by_nanosleep(struct timespec limit) {
    CHECK(nanosleep(&limit, NULL) == 0);
}
static void (*const waits[])(struct timespec) = {by_sigtimedwait, by_semtimedop, by_epoll_wait, by_epoll_pwait2,
                                                 by_select,       by_ppoll,      by_nanosleep};
static void *waiter(void *number) {
    const struct timespec limit = {LIMIT_MS / 1000, 0};
    long before = elapsed_ms();
    waits[(long)number](limit);
    long took = elapsed_ms() - before;
    /* Begun anew at each move it would last as long as there are moves. */
    if (took < LIMIT_MS - 1 || took > 3 * LIMIT_MS) say("wait %ld took %ld ms", (long)number, took);
    CHECK(took >= LIMIT_MS - 1 && took <= 3 * LIMIT_MS);
    return NULL;
}
int main(int argc, char **argv) {
    enum { KINDS = sizeof waits / sizeof *waits };
    suite_begin(argc, argv);
    epoll = epoll_create1(0);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    CHECK(epoll >= 0 && semaphores >= 0 && pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    pthread_t threads[KINDS];
    for (long i = 0; i < KINDS; i++) threads[i] = start(waiter, i);
    for (int i = 0; i < KINDS; i++) join(threads[i]);
    CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
    while (going_on()) sleep_ms(1);
    return suite_end();
}
