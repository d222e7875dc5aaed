/* One thread takes and gives rights while others write the pages: a fault comes to who wrote, who waits and writes again. */
// suite: flags -pthread
#include "threads.h"
enum { PAGES = 8 };
static unsigned char *at;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    unsigned char *where = info->si_addr;
    CHECK(where >= at && where < at + PAGES * 4096 && info->si_code == SEGV_ACCERR);
    sched_yield();
}
static void *work(void *number) {
    long me = (long)number;
    uint32_t round = 0;
    for (; !stopped(); round++)
        for (int i = 0; i < PAGES; i++) {
            volatile uint32_t *mine = (uint32_t *)(at + i * 4096) + me;
            CHECK(*mine == round);
            *mine = round + 1;
        }
    for (int i = 0; i < PAGES; i++) CHECK(((uint32_t *)(at + i * 4096))[me] == round);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGSEGV, handler, SA_RESTART);
    at = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = start(work, i);
    for (unsigned round = 0; going_on(); round++) {
        int first = round % PAGES, count = 1 + round % (PAGES - first);
        CHECK(mprotect(at + first * 4096, count * 4096, round % 2 ? PROT_READ : PROT_NONE) == 0);
        if (round % 5 == 0) sleep_ms(1);
        CHECK(mprotect(at, PAGES * 4096, PROT_READ | PROT_WRITE) == 0);
        if (round % 4 == 0) sleep_ms(1);
    }
    stop_all();
    for (int i = 0; i < 3; i++) join(threads[i]);
    return suite_end();
}
