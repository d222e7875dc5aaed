/* What every program of the suite shares.
 *
 * A program works in rounds for some 400 ms (its argument: milliseconds). Each round uses its object and checks it, so
 * that a move can come at any point of it. "step 1" to "step 10" are printed as time goes by, then "ok": the output is
 * the same however many rounds there were. A check that fails prints "FAIL what at line" and ends with status 1. */
#ifndef SUITE_H
#define SUITE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static long suite_ms = 400;
static struct timespec suite_start;
static int suite_step;
static int suite_began;

/* Writes a line in one write(2), whatever interrupts it. */
static __attribute__((unused, format(printf, 1, 2))) void say(const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (int done = 0; done < n;) {
        ssize_t wrote = write(1, line + done, n - done);
        if (wrote > 0) done += wrote;
        else if (wrote < 0 && errno != EINTR && errno != EAGAIN) _exit(90);
    }
}

static __attribute__((unused, noreturn)) void suite_fail(const char *what, int line) {
    int error = errno;
    say("FAIL %s at %d (last error: %s)\n", what, line, strerror(error));
    _exit(1);
}

#define CHECK(what) \
    do { \
        if (!(what)) suite_fail(#what, __LINE__); \
    } while (0)

/* The call fails with this error. */
#define CHECK_ERROR(call, error) \
    do { \
        errno = 0; \
        if ((long)(call) != -1 || errno != (error)) suite_fail(#call " is " #error, __LINE__); \
    } while (0)

static __attribute__((unused)) long elapsed_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - suite_start.tv_sec) * 1000 + (now.tv_nsec - suite_start.tv_nsec) / 1000000;
}

static __attribute__((unused)) void suite_begin(int argc, char **argv) {
    if (argc > 1) suite_ms = atol(argv[1]);
    clock_gettime(CLOCK_MONOTONIC, &suite_start);
}

/* One more round? True at least once. */
static __attribute__((unused)) int going_on(void) {
    long done = elapsed_ms();
    while (suite_step < 10 && done >= suite_ms * (suite_step + 1) / 10) say("step %d\n", ++suite_step);
    if (!suite_began) return suite_began = 1;
    return done < suite_ms;
}

static __attribute__((unused)) int suite_end(void) {
    while (suite_step < 10) say("step %d\n", ++suite_step);
    say("ok\n");
    return 0;
}

/* A process that works against the main one and never outlives it. */
static __attribute__((unused)) pid_t partner(void (*body)(void)) {
    pid_t main_pid = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != main_pid) _exit(91);
        body();
        _exit(0);
    }
    return pid;
}

/* Waits for a child and gives its raw status. */
static __attribute__((unused)) int wait_for(pid_t pid) {
    int status = 0;
    pid_t got;
    do got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    CHECK(got == pid);
    return status;
}

static __attribute__((unused)) void sleep_ms(long ms) {
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) < 0 && errno == EINTR) {
    }
}

/* All of it, whatever the kernel gives in one call. */
static __attribute__((unused)) void read_all(int fd, void *to, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        CHECK(got > 0);
        done += got;
    }
}

static __attribute__((unused)) void write_all(int fd, const void *from, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t put = write(fd, (const char *)from + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        CHECK(put > 0);
        done += put;
    }
}

/* A pattern that differs in every byte and for every seed, and its check. */
static __attribute__((unused)) unsigned char pattern_at(size_t i, unsigned seed) {
    return (unsigned char)((i * 2654435761u + seed * 40503u) >> 11 ^ i);
}

static __attribute__((unused)) void fill(void *at, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) ((unsigned char *)at)[i] = pattern_at(i, seed);
}

static __attribute__((unused)) int filled(const void *at, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)at)[i] != pattern_at(i, seed)) return 0;
    return 1;
}

static __attribute__((unused)) uint64_t digest(const void *at, size_t n) {
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)at)[i]) * 1099511628211ull;
    return h;
}

static __attribute__((unused)) void on(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = handler;
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static __attribute__((unused)) void on_info(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_flags = flags | SA_SIGINFO};
    action.sa_sigaction = handler;
    CHECK(sigaction(signal, &action, NULL) == 0);
}
#endif
