/* A handler changes the interrupted registers, the mask and where to go on. */
#include "suite.h"
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    ucontext_t *uc = context;
    uc->uc_mcontext.gregs[REG_RBX] ^= 0x5555;
    uc->uc_mcontext.gregs[REG_R13] += 7;
    uc->uc_mcontext.gregs[REG_RIP] += 2;
    sigaddset(&uc->uc_sigmask, SIGUSR2);
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    on_info(SIGILL, handler, 0);
    sigset_t set, old;
    sigemptyset(&set);
    for (unsigned long round = 0; going_on(); round++) {
        unsigned long b = round, r = round * 3;
        __asm__ volatile("mov %0, %%rbx; mov %1, %%r13; ud2; mov %%rbx, %0; mov %%r13, %1" : "+r"(b), "+r"(r)::"rbx", "r13", "memory");
        CHECK(b == (round ^ 0x5555) && r == round * 3 + 7);
        CHECK(sigprocmask(SIG_SETMASK, &set, &old) == 0 && sigismember(&old, SIGUSR2));
    }
    return suite_end();
}
