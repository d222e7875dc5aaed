/* SIGFPE, SIGILL, SIGTRAP and SIGBUS from instructions, each with its code and place. */
#include "suite.h"
static sigjmp_buf out;
static volatile siginfo_t seen;
static volatile long ip;
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal;
    seen = *info;
    ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    siglongjmp(out, 1);
}
extern char here_ill[], here_div[], here_trap[];
static __attribute__((noinline)) void divide(int by) {
    __asm__ volatile("mov $1, %%eax; cltd; .globl here_div; here_div: idivl %0" ::"r"(by) : "eax", "edx");
}
static __attribute__((noinline)) void illegal(void) { __asm__ volatile(".globl here_ill; here_ill: ud2"); }
static __attribute__((noinline)) void trap(void) { __asm__ volatile("int3; .globl here_trap; here_trap: nop"); }
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    int signals[] = {SIGFPE, SIGILL, SIGTRAP, SIGBUS, SIGSEGV};
    for (int i = 0; i < 5; i++) on_info(signals[i], handler, 0);
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 100) == 0);
    char *map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED);
    while (going_on()) {
        if (sigsetjmp(out, 1) == 0) divide(0);
        CHECK(seen.si_signo == SIGFPE && seen.si_code == FPE_INTDIV && ip == (long)here_div && seen.si_addr == here_div);
        if (sigsetjmp(out, 1) == 0) illegal();
        CHECK(seen.si_signo == SIGILL && seen.si_code == ILL_ILLOPN && ip == (long)here_ill);
        if (sigsetjmp(out, 1) == 0) trap();
        CHECK(seen.si_signo == SIGTRAP && ip == (long)here_trap);
        if (sigsetjmp(out, 1) == 0) CHECK(map[5000] == 1);
        CHECK(seen.si_signo == SIGBUS && seen.si_code == BUS_ADRERR && seen.si_addr == map + 5000);
        if (sigsetjmp(out, 1) == 0) *(volatile char *)0x8000000000000000ul = 1;
        CHECK(seen.si_signo == SIGSEGV && seen.si_code == SI_KERNEL);
    }
    return suite_end();
}
