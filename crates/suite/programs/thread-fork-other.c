/* fork and wait in two threads that are not the first: each waits for its own child, also by __WNOTHREAD. */
// suite: flags -pthread
#include "threads.h"
static void *work(void *number) {
    long me = (long)number;
    pid_t process = getpid();
    for (int round = 0; !stopped(); round++) {
        int p[2], status, got[2];
        CHECK(pipe2(p, O_CLOEXEC) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            int values[2] = {round * 3 + (int)me, getppid() == process && gettid() == getpid()};
            write_all(p[1], values, sizeof values);
            _exit(10 + (int)me);
        }
        read_all(p[0], got, sizeof got);
        CHECK(got[0] == round * 3 + me && got[1] == 1 && close(p[0]) == 0 && close(p[1]) == 0);
        CHECK(waitpid(pid, &status, round % 2 ? __WNOTHREAD : 0) == pid && WEXITSTATUS(status) == 10 + me);
        sleep_ms(3);
    }
    CHECK_ERROR(waitpid(-1, NULL, __WNOTHREAD), ECHILD);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pthread_t threads[2] = {start(work, 0), start(work, 1)};
    unsigned char data[20000];
    for (unsigned round = 0; going_on(); round++) {
        fill(data, sizeof data, round);
        CHECK(filled(data, sizeof data, round));
    }
    stop_all();
    join(threads[0]);
    join(threads[1]);
    CHECK_ERROR(wait(NULL), ECHILD);
    return suite_end();
}
