/* A signal ends the wait that its thread is in, with EINTR, whenever it comes: it is not just handled and the wait made again. A signal
 * may come before its thread waits, when the machine is very slow; that is seen by the time, and may happen to one in fifty. */
// suite: flags -pthread
#include "suite.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#define WAITERS 6
static volatile int over;
static volatile long rounds, late;
static int empty[2];
static void handler(int signal) { (void)signal; }
static int waits(int kind) {
    struct timespec rest = {2, 0};
    struct timeval soon = {2, 0};
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    switch (kind) {
    case 0: return nanosleep(&rest, NULL);
    case 1: return clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL) == EINTR ? -1 : 0;
    case 2: return poll(&(struct pollfd){empty[0], POLLIN, 0}, 1, 2000);
    case 3: return select(0, NULL, NULL, NULL, &soon);
    case 4: return ppoll(NULL, 0, &rest, &none);
    default: return epoll_wait(empty[1], &event, 1, 2000);
    }
}
static void *waiter(void *which) {
    int kind = (int)(long)which;
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = gettid();
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    while (!over) {
        struct itimerspec once = {{0, 0}, {0, (30 + 5 * kind) * 1000000}};
        CHECK(timer_settime(timer, 0, &once, NULL) == 0);
        int result = waits(kind);
        CHECK(result == 0 || (result == -1 && (kind == 1 || errno == EINTR)));
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
        if (result == 0) __atomic_add_fetch(&late, 1, __ATOMIC_RELAXED);
    }
    CHECK(timer_delete(timer) == 0);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pipe(empty) == 0);
    CHECK((empty[1] = epoll_create1(0)) >= 0);
    pthread_t all[WAITERS];
    for (long i = 0; i < WAITERS; i++) CHECK(pthread_create(&all[i], NULL, waiter, (void *)i) == 0);
    while (going_on()) sleep_ms(1);
    over = 1;
    for (int i = 0; i < WAITERS; i++) CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(late * 50 <= rounds);
    return suite_end();
}
