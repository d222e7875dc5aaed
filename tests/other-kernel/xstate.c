/* Linux in user mode keeps a fixed number of bytes for a process's registers: on a CPU with more of them (AMX) the kernel refuses to set so few, and it
 * ends. Loaded before it, this sets all of them, of which it knows the first ones. */
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202

long ptrace(enum __ptrace_request request, ...)
{
    va_list list;
    va_start(list, request);
    int pid = va_arg(list, int);
    void *address = va_arg(list, void *), *data = va_arg(list, void *);
    va_end(list);
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word;
        return syscall(SYS_ptrace, request, pid, address, &word) < 0 ? -1 : word;
    }
    if ((request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) && (long)address == NT_X86_XSTATE) {
        static char bytes[1 << 16] __attribute__((aligned(64)));
        struct iovec all = {bytes, sizeof bytes}, *some = data;
        if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) < 0)
            return -1;
        size_t size = some->iov_len < all.iov_len ? some->iov_len : all.iov_len;
        if (request == PTRACE_GETREGSET) {
            memcpy(some->iov_base, bytes, size);
            some->iov_len = size;
            return 0;
        }
        memcpy(bytes, some->iov_base, size);
        return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, address, &all);
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
