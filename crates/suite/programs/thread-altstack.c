/* Each thread has an alternative stack of its own, or none: its handlers run there, also for a fault. */
// suite: flags -pthread
#include "threads.h"
static __thread char *mine;
static __thread volatile int there, elsewhere;
static __thread sigjmp_buf out;
static void handler(int signal) {
    char here;
    volatile char deep[3000];
    deep[0] = deep[2999] = 1;
    if (mine && &here >= mine && &here < mine + 65536) there++;
    else elsewhere++;
    if (signal == SIGSEGV) siglongjmp(out, 1);
}
static void *work(void *number) {
    stack_t now;
    int with = (long)number > 0;
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_DISABLE);
    if (with) {
        mine = malloc(65536);
        CHECK(mine && sigaltstack(&(stack_t){.ss_sp = mine, .ss_size = 65536}, NULL) == 0);
    }
    volatile char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(nowhere != MAP_FAILED);
    int rounds = 0;
    while (!stopped()) {
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
        if (!sigsetjmp(out, 1)) *nowhere = 1;
        rounds += 2;
        CHECK(there == (with ? rounds : 0) && elsewhere == (with ? 0 : rounds));
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == (with ? 0 : SS_DISABLE) && (!with || now.ss_sp == mine));
        if ((long)number == 2) sleep_ms(1);
    }
    CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0 && munmap((void *)nowhere, 4096) == 0);
    free(mine);
    return NULL;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on(SIGUSR1, handler, SA_ONSTACK);
    on(SIGSEGV, handler, SA_ONSTACK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = start(work, i % 3);
    while (going_on()) sleep_ms(2);
    stop_all();
    for (int i = 0; i < 4; i++) join(threads[i]);
    return suite_end();
}
