/* A signal that a wait's own mask blocks does not end it: sigsuspend, ppoll, pselect and epoll_pwait. */
#define _GNU_SOURCE
#include "suite.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
static volatile sig_atomic_t asked, alarms;
static void on_asked(int signal) {
    (void)signal;
    asked++;
}
static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}
static void body(void) {
    for (;;) {
        sleep_ms(30);
        if (kill(getppid(), SIGUSR1) < 0) return;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    sigset_t block, none_asked, no_alarm, nothing;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
    sigemptyset(&no_alarm);
    sigaddset(&no_alarm, SIGALRM);
    none_asked = no_alarm;
    sigaddset(&none_asked, SIGUSR1);
    nothing = none_asked;
    on(SIGUSR1, on_asked, 0);
    pid_t pid = partner(body);
    on(SIGALRM, on_alarm, SA_RESTART);
    struct itimerval often = {{0, 3000}, {0, 3000}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    int poller = epoll_create1(0);
    CHECK(poller >= 0);
    while (going_on()) {
        int before = asked;
        CHECK_ERROR(sigsuspend(&no_alarm), EINTR);
        CHECK(asked == before + 1);
        struct timespec time = {0, 20000000};
        CHECK(ppoll(NULL, 0, &time, &nothing) == 0);
        CHECK(pselect(0, NULL, NULL, NULL, &time, &nothing) == 0);
        struct epoll_event event;
        CHECK(epoll_pwait(poller, &event, 1, 20, &nothing) == 0);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && alarms > 0);
    CHECK(kill(pid, SIGKILL) == 0 && WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
