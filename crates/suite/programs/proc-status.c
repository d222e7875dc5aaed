/* /proc/self tells of the process as at home: name, pid, parent, threads, command line, descriptors, directory. */
#include "suite.h"
static char text[65536];
static ssize_t slurp(const char *path) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t done = 0, n;
    while ((n = read(fd, text + done, sizeof text - 1 - done)) > 0) done += n;
    CHECK(n == 0 && close(fd) == 0);
    text[done] = 0;
    return done;
}
static long field(const char *name) {
    char *at = strstr(text, name);
    CHECK(at);
    return atol(at + strlen(name));
}
int main(int argc, char **argv) {
    suite_begin(argc, argv);
    pid_t pid = getpid(), parent = getppid();
    char link[PATH_MAX], want[PATH_MAX], path[64];
    int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && getcwd(want, sizeof want));
    while (going_on()) {
        slurp("/proc/self/status");
        CHECK(strstr(text, "Name:\tproc-status\n") && field("\nPid:\t") == pid && field("\nPPid:\t") == parent);
        CHECK(field("\nThreads:\t") == 1 && field("\nTracerPid:\t") >= 0);
        CHECK(slurp("/proc/self/cmdline") > 0 && strcmp(text, argv[0]) == 0);
        slurp("/proc/self/stat");
        CHECK(atol(text) == pid && strstr(text, "(proc-status)"));
        slurp("/proc/self/comm");
        CHECK(strcmp(text, "proc-status\n") == 0);
        ssize_t n = readlink("/proc/self/cwd", link, sizeof link);
        CHECK(n > 0 && memcmp(link, want, n) == 0);
        sprintf(path, "/proc/self/fd/%d", file);
        n = readlink(path, link, sizeof link);
        CHECK(n > 5 && memcmp(link + n - 5, "/file", 5) == 0);
        n = readlink("/proc/self/exe", link, sizeof link);
        CHECK(n > 11 && memcmp(link + n - 11, "proc-status", 11) == 0);
        sprintf(path, "/proc/%d/fdinfo/%d", pid, file);
        CHECK(lseek(file, 123, SEEK_SET) == 123 && slurp(path) > 0 && field("pos:\t") == 123);
    }
    return suite_end();
}
