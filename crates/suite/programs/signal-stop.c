/* A partner stops and continues the program: it computes on, handlers of SIGCONT run, a parent would see it. */
#include "suite.h"
static volatile sig_atomic_t continued;
static void handler(int signal) {
    (void)signal;
    continued++;
}
static void body(void) {
    for (int i = 0;; i++) {
        sleep_ms(10 + i % 17);
        if (kill(getppid(), SIGSTOP) < 0) return;
        sleep_ms(1 + i % 13);
        if (kill(getppid(), SIGCONT) < 0) return;
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGCONT, handler, SA_RESTART);
    pid_t pid = partner(body);
    static unsigned char data[30000];
    while (going_on() || continued < 2) {
        fill(data, sizeof data, continued);
        unsigned char copy[64];
        memcpy(copy, data, sizeof copy);
        CHECK(memcmp(copy, data, sizeof copy) == 0);
        CHECK(elapsed_ms() < 60000);
    }
    kill(pid, SIGKILL);
    CHECK(WTERMSIG(wait_for(pid)) == SIGKILL);
    return suite_end();
}
