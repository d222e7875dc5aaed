/* Anonymous memory shared with a partner: both count in it. Such a process may have to stay at home. */
// suite: may stay: memory shared with another process
#include "suite.h"
static volatile unsigned *shared;
static void body(void) {
    while (!shared[2]) __atomic_add_fetch(&shared[0], 1, __ATOMIC_SEQ_CST), sleep_ms(1);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t pid = partner(body);
    while (going_on()) {
        unsigned before = shared[0];
        for (int i = 0; shared[0] == before && i < 20000; i++) sleep_ms(1);
        CHECK(shared[0] != before);
    }
    shared[2] = 1;
    CHECK(wait_for(pid) == 0);
    return suite_end();
}
