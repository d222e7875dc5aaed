/* SA_SIGINFO: code, sender and value of kill, sigqueue, tgkill, and of a partner. */
#include "suite.h"
static volatile siginfo_t seen;
static volatile sig_atomic_t count;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    CHECK(context != NULL);
    seen = *info;
    count++;
}
static int gate[2];
static void body(void) {
    int number;
    close(gate[1]);
    while (read(gate[0], &number, sizeof number) == sizeof number) {
        CHECK(sigqueue(getppid(), SIGUSR2, (union sigval){.sival_int = number * 3}) == 0);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGUSR1, handler, 0);
    on_info(SIGUSR2, handler, 0);
    CHECK(pipe(gate) == 0);
    pid_t pid = partner(body);
    close(gate[0]);
    for (int round = 0; going_on(); round++) {
        CHECK(kill(getpid(), SIGUSR1) == 0 && seen.si_code == SI_USER && seen.si_pid == getpid() && seen.si_uid == getuid());
        CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = round}) == 0);
        CHECK(seen.si_code == SI_QUEUE && seen.si_value.sival_int == round && seen.si_signo == SIGUSR1);
        CHECK(tgkill(getpid(), gettid(), SIGUSR1) == 0 && seen.si_code == SI_TKILL);
        count = 0;
        CHECK(write(gate[1], &round, sizeof round) == sizeof round);
        for (int i = 0; !count && i < 20000; i++) sleep_ms(1);
        CHECK(count == 1 && seen.si_pid == pid && seen.si_code == SI_QUEUE && seen.si_value.sival_int == round * 3);
    }
    close(gate[1]);
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
