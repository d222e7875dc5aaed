/* Restartable sequences: glibc's registration stays alive, and a critical section of our own is never torn. */
#include "suite.h"
#include <sys/rseq.h>
static struct rseq *area(void) { return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset); }
/* Adds to two counters in one sequence; gives 0 when it was aborted before the commit. */
static int add(struct rseq *rseq, volatile unsigned long *scratch, volatile unsigned long *total) {
    int done = 0;
    __asm__ volatile(
        ".pushsection __rseq_cs, \"aw\"\n .balign 32\n 3: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
        "lea 3b(%%rip), %%rax\n mov %%rax, %[cs]\n"
        "1: mov $200, %%ecx\n 5: incq %[scratch]\n dec %%ecx\n jnz 5b\n"
        "mov $1, %[done]\n incq %[total]\n 2: jmp 6f\n"
        ".long 0x53053053\n 4: mov $0, %[done]\n 6:\n"
        : [done] "+r"(done), [scratch] "+m"(*scratch), [total] "+m"(*total), [cs] "=m"(rseq->rseq_cs)
        :: "rax", "rcx", "memory", "cc");
    return done;
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    if (__rseq_size == 0) {
        while (going_on()) sleep_ms(5);
        return suite_end();
    }
    struct rseq *rseq = area();
    volatile unsigned long scratch = 0, total = 0;
    unsigned long done = 0, tries = 0;
    while (going_on()) {
        for (int i = 0; i < 1000; i++, tries++) done += add(rseq, &scratch, &total);
        CHECK(total == done && scratch <= tries * 200 && scratch >= done * 200);
        CHECK((int)rseq->cpu_id >= 0 && rseq->cpu_id < 4096 && rseq->cpu_id_start < 4096);
    }
    CHECK(done > tries / 2);
    return suite_end();
}
