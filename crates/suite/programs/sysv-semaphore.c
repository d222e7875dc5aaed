/* System V semaphores with a partner: blocked semop, timed semop, values, undo. */
#include "suite.h"
#include <sys/sem.h>
static int id;
static void change(int number, int by) {
    struct sembuf step = {number, by, 0};
    while (semop(id, &step, 1) < 0) CHECK(errno == EINTR);
}
static void body(void) {
    for (;;) {
        struct sembuf take = {0, -1, 0};
        if (semop(id, &take, 1) < 0) return;
        sleep_ms(3);
        change(1, 1);
    }
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    id = semget(IPC_PRIVATE, 3, 0600);
    CHECK(id >= 0);
    pid_t pid = partner(body);
    while (going_on()) {
        change(0, 1);
        change(1, -1);
        CHECK(semctl(id, 0, GETVAL) == 0 && semctl(id, 1, GETVAL) == 0 && semctl(id, 2, SETVAL, 5) == 0);
        struct sembuf wait = {2, 0, 0}, none = {2, -6, IPC_NOWAIT};
        struct timespec limit = {0, 6000000};
        CHECK_ERROR(semop(id, &none, 1), EAGAIN);
        CHECK_ERROR(semtimedop(id, &wait, 1, &limit), EAGAIN);
        CHECK(semctl(id, 2, GETVAL) == 5);
    }
    CHECK(semctl(id, 0, IPC_RMID) == 0 && wait_for(pid) == 0);
    return suite_end();
}
