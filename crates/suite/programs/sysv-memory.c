/* System V shared memory. Such a process may have to stay at home. */
// suite: may stay: memory shared with other processes
#include "suite.h"
#include <sys/shm.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int id = shmget(IPC_PRIVATE, 40960, 0600);
    CHECK(id >= 0);
    unsigned char *at = shmat(id, NULL, 0), *twin = shmat(id, NULL, 0);
    CHECK(at != (void *)-1 && twin != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    for (unsigned round = 0; going_on(); round++) {
        fill(at, 40960, round);
        CHECK(filled(twin, 40960, round));
    }
    CHECK(shmdt(at) == 0 && shmdt(twin) == 0);
    return suite_end();
}
