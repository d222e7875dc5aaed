/* A storm of signals to oneself in the middle of computing: none lost, none twice, the sum stays right. */
#include "suite.h"
static volatile unsigned long sent, came, values;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    came++;
    values += info->si_value.sival_int;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGRTMIN + 3, handler, SA_RESTART);
    unsigned long want = 0;
    double sum = 0;
    while (going_on()) {
        sum = 0;
        for (int i = 1; i <= 500; i++) {
            CHECK(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i}) == 0);
            want += i;
            sent++;
            sum += 1.0 / i;
            CHECK(came == sent && values == want);
        }
        CHECK(sum > 6.792 && sum < 6.793);
    }
    return suite_end();
}
