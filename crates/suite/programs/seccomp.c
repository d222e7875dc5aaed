/* A program with a filter of its own: what it forbids stays forbidden. Such a process may have to stay at home. */
// suite: may stay: a seccomp filter of its own
#include "suite.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    pid_t parent = getppid();
    while (going_on()) {
        CHECK_ERROR(syscall(SYS_getpgrp), EDOM);
        CHECK(syscall(SYS_getppid) == parent);
    }
    return suite_end();
}
