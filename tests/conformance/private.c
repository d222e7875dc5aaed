/* LD_PRELOAD: shared anonymous memory that the first program maps before its first fork is private, so that its children can move.
 * stress-ng keeps its counters there, and processes that share writable memory stay together. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static int forked;
static void child(void) { forked = 1; }
__attribute__((constructor)) static void begin(void) {
    if (getenv("PRIVATE_DONE")) forked = 1;
    setenv("PRIVATE_DONE", "1", 1);
    pthread_atfork(0, 0, child);
}
void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    if (!forked && (flags & MAP_ANONYMOUS) && (flags & MAP_SHARED)) flags = (flags & ~MAP_SHARED) | MAP_PRIVATE;
    return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));
