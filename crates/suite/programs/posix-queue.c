/* A POSIX message queue: priorities, a blocked receive from a partner, timeouts. */
// suite: flags -lrt
#include "suite.h"
#include <mqueue.h>
static mqd_t to, from;
static void body(void) {
    char text[100];
    unsigned priority;
    for (;;) {
        ssize_t n = mq_receive(to, text, sizeof text, &priority);
        CHECK(n >= 0);
        if (n == 0) return;
        sleep_ms(2);
        CHECK(mq_send(from, text, n, priority + 1) == 0);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    char name[64];
    struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 100};
    sprintf(name, "/suite-a-%d", getpid());
    to = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    CHECK(to != -1 && mq_unlink(name) == 0);
    sprintf(name, "/suite-b-%d", getpid());
    from = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    CHECK(from != -1 && mq_unlink(name) == 0);
    pid_t pid = partner(body);
    char text[100];
    unsigned priority;
    for (unsigned round = 0; going_on(); round++) {
        size_t n = 1 + round % 100;
        fill(text, n, round);
        CHECK(mq_send(to, text, n, round % 50) == 0 && mq_receive(from, text, sizeof text, &priority) == (ssize_t)n);
        CHECK(filled(text, n, round) && priority == round % 50 + 1);
        CHECK(mq_send(from, "low", 3, 1) == 0 && mq_send(from, "high", 4, 9) == 0);
        CHECK(mq_receive(from, text, sizeof text, &priority) == 4 && priority == 9 && mq_receive(from, text, sizeof text, NULL) == 3);
        struct timespec limit;
        CHECK(clock_gettime(CLOCK_REALTIME, &limit) == 0);
        CHECK_ERROR(mq_timedreceive(from, text, sizeof text, NULL, &limit), ETIMEDOUT);
    }
    CHECK(mq_send(to, "", 0, 0) == 0 && wait_for(pid) == 0);
    return suite_end();
}
