/* fork and wait in a loop: memory is copied, statuses and usage are right. */
#include "suite.h"
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    static unsigned char data[100000];
    for (int round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            if (!filled(data, sizeof data, round)) _exit(99);
            memset(data, 0, sizeof data);
            _exit(round % 90);
        }
        int status;
        struct rusage usage;
        CHECK(wait4(pid, &status, 0, &usage) == pid && WIFEXITED(status) && WEXITSTATUS(status) == round % 90);
        CHECK(filled(data, sizeof data, round) && usage.ru_maxrss > 0);
        CHECK_ERROR(wait(NULL), ECHILD);
        sleep_ms(2);
    }
    return suite_end();
}
