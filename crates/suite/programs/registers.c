/* Every general register, the carry and direction flags and the red zone, over a long loop without calls. */
#include "suite.h"
/* (values for rdi rax rbx rcx rdx rsi rbp r8-r15, where they go afterwards with the flags, the flags to set) */
void spin_registers(const uint64_t put[15], uint64_t got[16], uint64_t flags);
__asm__(
    "spin_registers:\n "
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n push %rdx\n"
    "popfq\n mov 8(%rdi), %rax\n mov 16(%rdi), %rbx\n mov 24(%rdi), %rcx\n mov 32(%rdi), %rdx\n"
    "mov 40(%rdi), %rsi\n mov 48(%rdi), %rbp\n mov 56(%rdi), %r8\n mov 64(%rdi), %r9\n mov 72(%rdi), %r10\n"
    "mov 80(%rdi), %r11\n mov 88(%rdi), %r12\n mov 96(%rdi), %r13\n mov 104(%rdi), %r14\n"
    "mov 112(%rdi), %r15\n mov (%rdi), %rdi\n movq $1000000, -8(%rsp)\n 1: decq -8(%rsp)\n jnz 1b\n"
    "pushfq\n push %rdi\n mov 16(%rsp), %rdi\n mov %rax, 8(%rdi)\n mov %rbx, 16(%rdi)\n"
    "mov %rcx, 24(%rdi)\n mov %rdx, 32(%rdi)\n mov %rsi, 40(%rdi)\n mov %rbp, 48(%rdi)\n"
    "mov %r8, 56(%rdi)\n mov %r9, 64(%rdi)\n mov %r10, 72(%rdi)\n mov %r11, 80(%rdi)\n mov %r12, 88(%rdi)\n"
    "mov %r13, 96(%rdi)\n mov %r14, 104(%rdi)\n mov %r15, 112(%rdi)\n pop %rax\n mov %rax, (%rdi)\n"
    "pop %rax\n mov %rax, 120(%rdi)\n cld\n pop %rsi\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n"
    "pop %rbp\n pop %rbx\n ret\n");
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    uint64_t put[15], got[16];
    for (unsigned round = 0; going_on(); round++) {
        uint64_t flags = 0x202 | (round & 1) | (round & 2 ? 0x400 : 0);
        fill(put, sizeof put, round);
        memset(got, 0, sizeof got);
        spin_registers(put, got, flags);
        CHECK(memcmp(put, got, sizeof put) == 0 && (got[15] & 0x401) == (flags & 0x401));
    }
    return suite_end();
}
