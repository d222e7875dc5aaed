/* A handled and an ignored signal come together, once, while the program waits in epoll_pwait: that is interrupted. */
#include "suite.h"
#include <sys/epoll.h>
static volatile sig_atomic_t came;
static int asked[2];
static void handler(int signal) { (void)signal; came++; }
static void body(void) {
    char c;
    close(asked[1]);
    for (int i = 0; read(asked[0], &c, 1) == 1; i++) {
        sleep_ms(i % 5);
        kill(getppid(), i % 2 ? SIGTERM : SIGCONT);
        kill(getppid(), i % 2 ? SIGCONT : SIGTERM);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGTERM, handler, 0);
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    int queue = epoll_create1(0);
    CHECK(queue >= 0 && pipe(asked) == 0);
    pid_t pid = partner(body);
    close(asked[0]);
    for (int round = 1; going_on(); round++) {
        struct epoll_event event;
        CHECK(write(asked[1], "x", 1) == 1);
        CHECK(epoll_pwait(queue, &event, 1, 5000, &none) == -1 && errno == EINTR && came == round);
    }
    close(asked[1]);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
