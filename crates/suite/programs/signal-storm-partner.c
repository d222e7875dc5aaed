/* A partner floods the program with real-time signals while it computes: each comes once, in order. */
#include "suite.h"
static volatile int came, wrong;
static int done[2], gate[2];
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    if (info->si_value.sival_int != came) wrong++;
    came++;
}
static void body(void) {
    int sent = 0;
    char c;
    close(gate[1]);
    fcntl(gate[0], F_SETFL, O_NONBLOCK);
    while (read(gate[0], &c, 1) < 0) {
        /* Not without end: pending signals are counted against all of the user's processes. */
        for (int i = 0; i < 20 && sent < 30000; i++) {
            if (sigqueue(getppid(), SIGRTMIN, (union sigval){.sival_int = sent}) == 0) sent++;
            else CHECK(errno == EAGAIN);
        }
        sleep_ms(2);
    }
    write_all(done[1], &sent, sizeof sent);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGRTMIN, handler, SA_RESTART);
    CHECK(pipe(done) == 0 && pipe(gate) == 0);
    pid_t pid = partner(body);
    close(gate[0]);
    static unsigned table[4096];
    unsigned first = 0;
    while (going_on()) {
        for (unsigned i = 0; i < 4096; i++) table[i] = i * 2654435761u;
        for (int pass = 0; pass < 20; pass++)
            for (unsigned i = 1; i < 4096; i++) table[i] ^= table[i - 1] * 3 + pass;
        unsigned now = digest(table, sizeof table);
        if (!first) first = now;
        CHECK(now == first && !wrong);
    }
    close(gate[1]);
    int sent;
    read_all(done[0], &sent, sizeof sent);
    CHECK(wait_for(pid) == 0);
    /* Each signal cuts a sleep short, so their number says nothing about the time. */
    for (time_t until = time(NULL) + 30; came < sent && time(NULL) < until;) sleep_ms(1);
    CHECK(!wrong);
    CHECK(came == sent);
    return suite_end();
}
