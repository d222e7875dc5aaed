/* Computes on its memory and works on a file, under a timer of its CPU time. With a second argument it goes on till its input
 * ends, not by time. */
#include "suite.h"
#include <sys/rseq.h>
static unsigned char data[3 << 20], in[4096];
static int told;
static volatile sig_atomic_t ticks;
static void tick(int signal) {
    (void)signal;
    ticks++;
}
static int more(void) {
    struct pollfd input = {0, POLLIN, 0};
    char c;
    if (!told) return going_on();
    return poll(&input, 1, 0) <= 0 || read(0, &c, 1) != 0;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    told = argc > 2;
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    fill(data, sizeof data, 0);
    on(SIGVTALRM, tick, SA_RESTART);
    struct itimerval often = {{0, 50000}, {0, 50000}};
    CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    say("ready\n");
    for (unsigned round = 0; more(); round++) {
        CHECK(filled(data, sizeof data, round));
        fill(data, sizeof data, round + 1);
        CHECK(pwrite(fd, data, sizeof in, 0) == sizeof in);
        CHECK(pread(fd, in, sizeof in, 0) == sizeof in && filled(in, sizeof in, round + 1));
    }
    /* The timer still runs, and the kernel still says in the area of rseq where we are. */
    long from = elapsed_ms();
    for (int before = ticks; ticks == before; fill(data, sizeof data, 1)) CHECK(elapsed_ms() - from < 20000);
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    CHECK(__rseq_size == 0 || (int)area->cpu_id >= 0);
    return suite_end();
}
